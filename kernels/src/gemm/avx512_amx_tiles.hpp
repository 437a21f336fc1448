#pragma once

#include <cstdint>

/// Products of bfloat16 with a packed weight in matrix registers (AMX), in tiles of 16 rows of 64 bytes.
namespace heddle::amx {

constexpr std::int64_t tile_rows = 16;
/// The elements of k that one operation multiplies.
constexpr std::int64_t step = 32;
/// The columns that are computed together: two tiles.
constexpr std::int64_t panel = 32;

/// A weight [n, k], of float32 or bfloat16.
struct Weight {
  void const* data;
  std::int64_t stride, n, k;
  bool float32;
};

/// The bfloat16 of a packed weight, where k is a multiple of `step`.
constexpr std::int64_t packed_elements(std::int64_t n, std::int64_t k) {
  return (n + panel - 1) / panel * panel * k;
}
/// Writes the weight, rounded, in the order in which tiles read it: panels of columns, which are zero beyond n.
void pack(Weight const& weight, std::uint16_t* packed);

struct Product {
  std::uint16_t const* a;
  std::int64_t a_stride;
  std::uint16_t const* packed;
  void* c;
  std::int64_t c_stride;
  bool c_is_float32;
  float const* bias;     ///< null: none
  std::uint16_t* spare;  ///< room for tile_rows rows of a
  std::int64_t m, n, k;
};
/// c = a wᵀ + bias. The order of an element's sums depends on k only.
void multiply(Product const& product);

}  // namespace heddle::amx
