#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/parallel/mesh.hpp>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>

namespace heddle {

namespace {

constexpr int uncountable = std::numeric_limits<int>::max();

/// The distance of a shape from the wanted one, its criteria in order of importance.
struct Distance {
  int changes = 0;
  double factor = 1;
  double factor_outside_data = 1;

  auto operator<=>(Distance const&) const = default;
};

Distance distance(MeshShape const& wanted, MeshShape const& shape) {
  Distance result;
  for (auto const& [axis, size] : shape.axes()) {
    int const before = wanted.size(axis);
    auto const [smaller, larger] = std::minmax(before, size);
    if (smaller == 0 || smaller == larger) {
      continue;
    }
    double const factor = static_cast<double>(larger) / smaller;
    ++result.changes;
    result.factor *= factor;
    result.factor_outside_data *= axis == MeshAxis::data ? 1 : factor;
  }
  return result;
}

bool contains(MeshAxes const& axes, MeshAxis axis) {
  return std::ranges::find(axes, axis) != axes.end();
}

}  // namespace

MeshAxes const& replica_axes() {
  static MeshAxes const axes{MeshAxis::data, MeshAxis::context};
  return axes;
}

MeshShape::MeshShape() : MeshShape(1, 1, 1, 1) {}

MeshShape::MeshShape(int pipeline, int data, int context, int tensor)
    : MeshShape(std::vector<Axis>{{MeshAxis::pipeline, pipeline},
                                  {MeshAxis::data, data},
                                  {MeshAxis::context, context},
                                  {MeshAxis::tensor, tensor}}) {}

MeshShape MeshShape::with_encoder_tensor(int ranks) const {
  int const tensor = size(MeshAxis::tensor);
  if (ranks == tensor) {
    return *this;
  }
  int const both = std::gcd(ranks, tensor);
  int const encoder = ranks / both;
  int const decoder = tensor / both;
  return MeshShape(std::vector<Axis>{{MeshAxis::pipeline, size(MeshAxis::pipeline)},
                                     {MeshAxis::data, size(MeshAxis::data)},
                                     {MeshAxis::context, size(MeshAxis::context) / encoder},
                                     {MeshAxis::encoder_tensor, encoder},
                                     {MeshAxis::decoder_tensor, decoder},
                                     {MeshAxis::tensor, both}});
}

bool MeshShape::has_grids() const {
  return size({MeshAxis::encoder_tensor, MeshAxis::decoder_tensor}) > 1;
}

MeshAxes MeshShape::context_axes(Grid grid) {
  return {MeshAxis::context, grid == Grid::encoder ? MeshAxis::decoder_tensor : MeshAxis::encoder_tensor};
}

MeshAxes MeshShape::tensor_axes(Grid grid) {
  return {grid == Grid::encoder ? MeshAxis::encoder_tensor : MeshAxis::decoder_tensor, MeshAxis::tensor};
}

MeshAxes MeshShape::axes_except(MeshAxis axis) const {
  MeshAxes others;
  std::ranges::transform(axes_, std::back_inserter(others), &Axis::axis);
  std::erase(others, axis);
  return others;
}

MeshAxes MeshShape::model_axes() const {
  MeshAxes axes = axes_except(MeshAxis::pipeline);
  std::erase_if(axes, [](MeshAxis axis) { return contains(replica_axes(), axis); });
  std::ranges::reverse(axes);
  return axes;
}

int MeshShape::size(MeshAxis axis) const {
  auto const found = std::ranges::find(axes_, axis, &Axis::axis);
  return found == axes_.end() ? 1 : found->size;
}

int MeshShape::size(MeshAxes const& axes) const {
  std::int64_t product = 1;
  for (auto const& [axis, size] : axes_) {
    product = std::min<std::int64_t>(product * (contains(axes, axis) ? size : 1), uncountable);
  }
  return static_cast<int>(product);
}

int MeshShape::ranks() const {
  std::int64_t product = 1;
  for (auto const& [axis, size] : axes_) {
    product = std::min<std::int64_t>(product * size, uncountable);
  }
  return static_cast<int>(product);
}

MeshShape MeshShape::with(MeshAxis axis, int size) const {
  MeshShape changed = *this;
  auto const found = std::ranges::find(changed.axes_, axis, &Axis::axis);
  if (found == changed.axes_.end()) {
    throw Error("the mesh {} has no axis {}", to_string(), axis.name());
  }
  found->size = size;
  return changed;
}

int MeshShape::coordinate(MeshAxis axis, int rank) const {
  for (auto each = axes_.rbegin(); each != axes_.rend(); ++each) {
    if (each->axis == axis) {
      return rank % each->size;
    }
    rank /= each->size;
  }
  return 0;
}

int MeshShape::place(MeshAxes const& axes, int rank) const {
  int place = 0;
  int stride = 1;  // of places
  for (auto each = axes_.rbegin(); each != axes_.rend(); ++each) {
    if (contains(axes, each->axis)) {
      place += stride * (rank % each->size);
      stride *= each->size;
    }
    rank /= each->size;
  }
  return place;
}

int MeshShape::rank_at(MeshAxes const& axes, int place, int rank) const {
  int moved = 0;
  int stride = 1;  // of ranks
  for (auto each = axes_.rbegin(); each != axes_.rend(); ++each) {
    bool const moves = contains(axes, each->axis);
    moved += stride * ((moves ? place : rank) % each->size);
    stride *= each->size;
    place = moves ? place / each->size : place;
    rank /= each->size;
  }
  return moved;
}

std::string MeshShape::to_string() const {
  if (has_grids()) {
    auto const grid = [&](Grid of) {
      return fmt::format("context {} × tensor {}", size(context_axes(of)), size(tensor_axes(of)));
    };
    return fmt::format("pipeline {} × data {} × {} (encoder: {})", size(MeshAxis::pipeline), size(MeshAxis::data),
                       grid(Grid::decoder), grid(Grid::encoder));
  }
  std::string text;
  for (auto const& [axis, size] : axes_) {
    text += fmt::format("{}{} {}", text.empty() ? "" : " × ", axis.name(), size);
  }
  return text;
}

Mesh::Mesh(MeshShape shape, int rank, int ranks) : shape_(std::move(shape)), rank_(rank) {
  for (auto const& [axis, size] : shape_.axes()) {
    if (size < 1) {
      throw ConfigError("parallel.{} = {} must be at least 1", axis.name(), size);
    }
  }
  if (int const product = shape_.ranks(); product != ranks) {
    throw ConfigError("the layout {} needs {}{} ranks, but {} run", to_string(),
                      product == uncountable ? "at least " : "", product, ranks);
  }
}

/// The groups of the two grids have the names that they have on any mesh.
void Mesh::name_in_grids(MeshGroup& group, MeshAxes const& axes) {
  bool const one_of_several = axes.size() == 1 && axes.front() != MeshAxis::pipeline && axes.front() != MeshAxis::data;
  group.name = one_of_several                                   ? group.name + " axis"
               : axes == MeshShape::context_axes(Grid::decoder) ? "context"
               : axes == MeshShape::tensor_axes(Grid::decoder)  ? "tensor"
               : axes == MeshShape::context_axes(Grid::encoder) ? "encoder_context"
               : axes == MeshShape::tensor_axes(Grid::encoder)  ? "encoder_tensor"
                                                                : group.name;
}

MeshGroup Mesh::group(MeshAxes const& axes) const {
  MeshAxes present;
  MeshGroup group{.name = {},
                  .first = shape_.rank_at(axes, 0, rank_),
                  .place = shape_.place(axes, rank_),
                  .size = shape_.size(axes)};
  for (auto const& [axis, size] : shape_.axes()) {
    if (contains(axes, axis)) {
      group.name += fmt::format("{}{}", group.name.empty() ? "" : " × ", axis.name());
      present.push_back(axis);
    }
  }
  group.name = std::ranges::is_permutation(present, replica_axes()) ? "replicas" : group.name;
  if (shape_.has_grids()) {
    name_in_grids(group, present);
  }
  return group;
}

MeshGroup Mesh::replica_run(int ranks, std::string name) const {
  int const replica = shape_.place(replica_axes(), rank_);
  int const place = replica % ranks;
  return {std::move(name), shape_.rank_at(replica_axes(), replica - place, rank_), place, ranks};
}

MeshGroup Mesh::across_replica_runs(int ranks, std::string name) const {
  int const replica = shape_.place(replica_axes(), rank_);
  return {std::move(name), shape_.rank_at(replica_axes(), replica % ranks, rank_), replica / ranks,
          shape_.size(replica_axes()) / ranks};
}

std::vector<int> divisors_of(int number) {
  std::vector<int> divisors, others;
  for (int divisor = 1; divisor <= number / divisor; ++divisor) {
    if (number % divisor == 0) {
      divisors.push_back(divisor);
      others.push_back(number / divisor);
    }
  }
  if (divisors.back() == others.back()) {
    others.pop_back();
  }
  divisors.insert(divisors.end(), others.rbegin(), others.rend());
  return divisors;
}

std::vector<MeshShape> shapes_of(int ranks) {
  MeshShape const one;
  std::vector<MeshShape> shapes{one};
  for (auto each = one.axes().rbegin(); each != one.axes().rend(); ++each) {
    if (each->axis == MeshAxis::data) {
      continue;
    }
    std::vector<MeshShape> longer;
    for (MeshShape const& shape : shapes) {
      for (int const size : divisors_of(ranks / shape.ranks())) {
        longer.push_back(shape.with(each->axis, size));
      }
    }
    shapes = std::move(longer);
  }
  for (MeshShape& shape : shapes) {
    shape = shape.with(MeshAxis::data, ranks / shape.ranks());
  }
  return shapes;
}

std::vector<MeshShape> nearest_shapes(MeshShape const& wanted, int ranks,
                                      std::function<bool(MeshShape const&)> const& works, std::size_t count) {
  std::vector<std::pair<Distance, MeshShape>> found;
  for (MeshShape& shape : shapes_of(ranks)) {
    if (works(shape)) {
      found.emplace_back(distance(wanted, shape), std::move(shape));
    }
  }
  std::ranges::sort(found);
  found.resize(std::min(count, found.size()));
  std::vector<MeshShape> shapes;
  for (auto& [distance_here, shape] : found) {
    shapes.push_back(std::move(shape));
  }
  return shapes;
}

std::string list_shapes(std::span<MeshShape const> shapes) {
  std::string text;
  for (MeshShape const& shape : shapes) {
    text += text.empty() ? "parallel." : "; or parallel.";
    for (auto const& [axis, size] : shape.axes()) {
      text += fmt::format("{}{} = {}", &axis == &shape.axes().front().axis ? "" : ", ", axis.name(), size);
    }
  }
  return text;
}

}  // namespace heddle
