#include <algorithm>
#include <heddle/core/parameters/placement.hpp>

namespace heddle {

namespace {

bool contains(MeshAxes const& axes, MeshAxis axis) {
  return std::ranges::find(axes, axis) != axes.end();
}

}  // namespace

std::vector<MeshAxes> Placement::sharded_along(int axis, MeshAxis over) {
  std::vector<MeshAxes> shards(static_cast<std::size_t>(axis + 1));
  if (axis >= 0) {
    shards.back() = {over};
  }
  return shards;
}

int Placement::shards_along(int axis, MeshShape const& mesh) const {
  return axis < std::ssize(shards) ? mesh.size(shards[static_cast<std::size_t>(axis)]) : 1;
}

bool Placement::is_split_over(MeshAxis axis) const {
  return std::ranges::any_of(shards, [=](MeshAxes const& axes) { return contains(axes, axis); });
}

bool Placement::is_partial_over(MeshAxis axis) const {
  return contains(gradient_partial_over, axis);
}

Slice Placement::slice(MeshShape const& mesh, int rank) const {
  std::vector<IndexRange> ranges;
  for (MeshAxes const& axes : shards) {
    std::int64_t place = 0;
    for (MeshAxis const axis : axes) {
      place = place * mesh.size(axis) + mesh.coordinate(axis, rank);
    }
    int const axis = static_cast<int>(ranges.size());
    ranges.push_back(share(global_shape[axis], place, shards_along(axis, mesh)));
  }
  return Slice(global_shape.to_vector(), std::move(ranges));
}

bool Placement::counts(Mesh const& mesh) const {
  bool const first_stage = stages.empty() || stages.front() == mesh.coordinate(MeshAxis::pipeline);
  return first_stage && std::ranges::all_of(mesh.shape().model_axes(), [&](MeshAxis axis) {
           return is_split_over(axis) || mesh.coordinate(axis) == 0;
         });
}

}  // namespace heddle
