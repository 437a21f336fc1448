#pragma once

#include <heddle/core/operations/kernel_author.hpp>
#include <heddle/core/operations/tensor_ops.hpp>

namespace heddle::kernels {

/// A tensor as rows: axis 0, which may be strided, and all the others.
struct Extents {
  std::int64_t rows;
  std::int64_t columns;

  explicit Extents(Tensor const& tensor)
      : rows(tensor.shape().rank() == 0 ? 1 : tensor.dim(0)), columns(rows == 0 ? 0 : tensor.size() / rows) {
    // A vector is one row, so that loops over columns are long.
    if (tensor.shape().rank() == 1) {
      columns = rows;
      rows = 1;
    }
  }
};

/// The rows that copy_rows reads and writes.
struct RowPairs {
  std::int32_t const* index;  ///< null: 0 to count - 1
  std::int32_t const* place;  ///< as index
  std::int64_t count;

  RowPairs(Tensor const& written, Tensor const& from_rows, Tensor const& to_rows)
      : index(from_rows.empty() ? nullptr : from_rows.data<std::int32_t>()),
        place(to_rows.empty() ? nullptr : to_rows.data<std::int32_t>()),
        count(to_rows.empty() ? written.dim(0) : to_rows.dim(0)) {}

  KOKKOS_INLINE_FUNCTION std::int64_t from(std::int64_t i) const { return index == nullptr ? i : index[i]; }
  KOKKOS_INLINE_FUNCTION std::int64_t to(std::int64_t i) const { return place == nullptr ? i : place[i]; }
};

}  // namespace heddle::kernels
