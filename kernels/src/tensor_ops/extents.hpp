#pragma once

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

}  // namespace heddle::kernels
