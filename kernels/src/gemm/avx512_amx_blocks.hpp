#pragma once

#include <cstdint>

#include "avx512_amx_tiles.hpp"

/// How the `amx` GEMM divides a product into blocks that fit in the caches.
namespace heddle::amx {

/// The sizes of blocks; `rows`, `columns` and `k` are multiples of 32.
struct Blocking {
  std::int64_t rows = 0, columns = 0, k = 0;
  bool by_panels = false;  ///< few rows: see Block; otherwise see Product
  bool packed = false;     ///< all of op(b) is packed already
  bool split = false;      ///< both factors are

  /// No partial sums.
  bool one_k_block(std::int64_t all_k) const { return k >= all_k; }
  std::int64_t left_elements() const { return rows * k * parts(split); }
  std::int64_t right_elements() const { return packed ? 0 : columns * k * parts(split); }
  std::int64_t partial_elements(std::int64_t all_k) const { return one_k_block(all_k) ? 0 : rows * columns; }
};

struct Extents {
  std::int64_t m, n, k;
};
Blocking blocking_of(Extents const& extents, bool packed, bool split);

/// c = or += op(a) op(b) + bias; the sizes of blocks in `product` are set to those of `by`. The order of an element's
/// sums depends on k only.
void multiply(Blocking const& by, Product product);

}  // namespace heddle::amx
