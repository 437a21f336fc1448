#pragma once

#include <cstdint>
#include <string_view>

namespace heddle {

/// The axes of the rank grid, outermost first. Tensor neighbours have consecutive ranks, so they are on one node.
enum class MeshAxis : std::uint8_t { pipeline, data, context, tensor };
inline constexpr int mesh_axes = 4;

/// The way in which a context group's ranks exchange keys and values.
enum class ContextMode : std::uint8_t { ring, ulysses };

std::string_view name_of(MeshAxis axis);

}  // namespace heddle
