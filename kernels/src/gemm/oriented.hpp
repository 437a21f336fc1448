#pragma once

#include <heddle/core/tensor/tensor.hpp>

namespace heddle::kernels {

/// A matrix that may be transposed: element (i, j) is data[i * row_stride + j * column_stride].
template <class Element>
struct Oriented {
  Element const* data;
  std::int64_t row_stride;
  std::int64_t column_stride;

  Oriented(Tensor const& tensor, bool transposed)
      : data(tensor.data<Element>()),
        row_stride(transposed ? 1 : tensor.row_stride()),
        column_stride(transposed ? tensor.row_stride() : 1) {}
};

}  // namespace heddle::kernels
