#pragma once

#include <cstdint>

#include "avx512_amx_tiles.hpp"

/// How the `amx` GEMM divides a product into blocks that fit in the caches.
namespace heddle::amx {

/// The sizes of blocks; `rows`, `columns` and `k` are multiples of 32.
struct Blocking {
  std::int64_t rows, columns, k;
  bool by_panels;    ///< see Block
  bool one_k_block;  ///< no partial sums
  bool split;        ///< of both factors
  bool right_by_k;   ///< op(b) is packed block by block of k: all rows and columns are one block

  std::int64_t left_elements() const { return rows * k * parts(split); }
  /// The elements of the packed columns of op(b); `all_k`: the product's k.
  std::int64_t right_elements(std::int64_t all_k) const {
    return packed_elements(columns, right_by_k ? k : all_k) * parts(split);
  }
  std::int64_t partial_elements() const { return one_k_block ? 0 : rows * columns; }
};

struct Extents {
  std::int64_t m, n, k;
};
/// `packed`: all of op(b) is packed already. `split`: both factors are.
Blocking blocking_of(Extents const& extents, bool packed, bool split);

struct Product {
  Factor a;
  Factor b;                     ///< not read where `packed` is set
  std::uint16_t const* packed;  ///< all of op(b), or null
  Output c;
  Blocking blocking;
  std::uint16_t* left;   ///< room for a packed block of op(a)
  std::uint16_t* right;  ///< room for packed columns of op(b), if `packed` is null
  float* partial;        ///< room for partial sums
};

/// c = or += op(a) op(b) + bias. The order of an element's sums depends on k only.
void multiply(Product const& product);

}  // namespace heddle::amx
