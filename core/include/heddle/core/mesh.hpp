#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace heddle {

/// The axes of the rank grid, outermost first: tensor neighbours have consecutive ranks, so they share a node.
enum class MeshAxis : std::uint8_t { pipeline, data, context, tensor };
inline constexpr int mesh_axes = 4;

/// How a context group's ranks exchange keys and values.
enum class ContextMode : std::uint8_t { ring, ulysses };

std::string_view name_of(MeshAxis axis);

/// The grid pipeline × data × context × tensor and one rank's place in it. A value: nobody asks the world for it.
class Mesh {
 public:
  Mesh() = default;
  /// Throws ConfigError where the product of `sizes` is not `ranks`, with layouts that would fit.
  Mesh(std::array<int, mesh_axes> sizes, int rank, int ranks);

  int size(MeshAxis axis) const { return sizes_[static_cast<std::size_t>(axis)]; }
  int coordinate(MeshAxis axis) const;
  int rank() const { return rank_; }
  /// Ranks with the same colour differ only along `axis`: they form its group.
  int color(MeshAxis axis) const;
  std::string to_string() const;

 private:
  std::array<int, mesh_axes> sizes_{1, 1, 1, 1};
  int rank_ = 0;
};

}  // namespace heddle
