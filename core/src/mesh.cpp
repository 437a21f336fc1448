#include <fmt/format.h>

#include <heddle/core/error.hpp>
#include <heddle/core/mesh.hpp>

namespace heddle {

namespace {

constexpr std::array<std::string_view, mesh_axes> axis_names{"pipeline", "data", "context", "tensor"};

}  // namespace

std::string_view name_of(MeshAxis axis) {
  return axis_names[static_cast<std::size_t>(axis)];
}

Mesh::Mesh(std::array<int, mesh_axes> sizes, int rank, int ranks) : sizes_(sizes), rank_(rank) {
  int product = 1;
  for (std::size_t axis = 0; axis < mesh_axes; ++axis) {
    if (sizes[axis] < 1) {
      throw ConfigError(fmt::format("parallel.{} = {} must be at least 1", axis_names[axis], sizes[axis]));
    }
    product *= sizes[axis];
  }
  if (product != ranks) {
    int const others = product / size(MeshAxis::data);
    std::string const advice = ranks % others == 0
                                   ? fmt::format("parallel.data = {} (or \"auto\") would fit", ranks / others)
                                   : fmt::format("start a multiple of {} ranks, or lower the other axes", others);
    throw ConfigError(fmt::format("the layout {} needs {} ranks, but {} run; {}", to_string(), product, ranks, advice));
  }
}

int Mesh::coordinate(MeshAxis axis) const {
  int stride = 1;
  for (std::size_t inner = mesh_axes - 1; inner > static_cast<std::size_t>(axis); --inner) {
    stride *= sizes_[inner];
  }
  return rank_ / stride % size(axis);
}

int Mesh::color(MeshAxis axis) const {
  int color = 0;
  for (std::size_t other = 0; other < mesh_axes; ++other) {
    if (other != static_cast<std::size_t>(axis)) {
      color = color * sizes_[other] + coordinate(static_cast<MeshAxis>(other));
    }
  }
  return color;
}

std::string Mesh::to_string() const {
  return fmt::format("pipeline {} × data {} × context {} × tensor {}", sizes_[0], sizes_[1], sizes_[2], sizes_[3]);
}

}  // namespace heddle
