#pragma once

#include <array>
#include <functional>
#include <heddle/core/base/enumerations.hpp>
#include <span>
#include <string>
#include <vector>

namespace heddle {

/// The grid pipeline × data × context × tensor and one rank's place in it. A value that is passed in.
class Mesh {
 public:
  Mesh() = default;
  /// Throws ConfigError where the product of `sizes` is not `ranks`.
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

/// The divisors of a positive number, ascending.
std::vector<int> divisors_of(int number);

/// The layouts of `ranks` ranks for which `works` is true, at most `count` of them, nearest to `wanted` first: fewest
/// axes changed, then the smallest factors between old and new sizes, then changes of data rather than of other axes.
/// A wanted size of 0 is open: any size there is no change. Empty if no layout works.
std::vector<std::array<int, mesh_axes>> nearest_layouts(
    std::array<int, mesh_axes> const& wanted, int ranks,
    std::function<bool(std::array<int, mesh_axes> const&)> const& works, std::size_t count = 3);

/// The layouts in the form of an error message: "parallel.pipeline = 2, data = 1, context = 1, tensor = 2; or
/// parallel.…".
std::string list_layouts(std::span<std::array<int, mesh_axes> const> layouts);

}  // namespace heddle
