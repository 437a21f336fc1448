#include <array>
#include <heddle/core/base/mesh_axis.hpp>

namespace heddle {

namespace {

constexpr std::array<std::string_view, mesh_axes> axis_names{"pipeline", "data", "context", "tensor"};

}  // namespace

std::string_view name_of(MeshAxis axis) {
  return axis_names[static_cast<std::size_t>(axis)];
}

}  // namespace heddle
