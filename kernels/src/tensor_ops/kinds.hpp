#pragma once

#include <heddle/core/base/error.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <string>

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

inline void require_same_shape(Tensor const& from, Tensor const& to, char const* operation) {
  if (!(from.shape() == to.shape())) {
    throw Error(std::string(operation) + " from " + from.shape().to_string() + " to " + to.shape().to_string() +
                ": the shapes must be equal");
  }
}

inline void require_sum_of_squares(Tensor const& tensor, Tensor const& sum) {
  if (!tensor.contiguous()) {
    throw Error("add_sum_of_squares of a tensor with strided rows: it must be contiguous");
  }
  sum.require(DType::float64, {1}, "add_sum_of_squares' sum");
}

inline void require_rotation(Tensor const& matrix, Rotation const& rotation) {
  rotation.position.require(DType::int32, Shape{matrix.dim(0)}, "rotate's position");
  Tensor const& table = rotation.table;
  std::int64_t const width = table.dim(1);
  if (table.dtype() != statistics_dtype(matrix.dtype()) || width % 2 != 0 || matrix.dim(1) % width != 0) {
    throw Error("rotate of " + matrix.shape().to_string() + " by a table " + table.shape().to_string() +
                ": the table's columns are even, divide the matrix's and are in its dtype of statistics");
  }
}

inline void require_gather(Tensor const& from, Tensor const& index, Tensor const& to) {
  index.require(DType::int32, Shape{to.dim(0)}, "gather_rows' index");
  if (from.dtype() != to.dtype() || from.dim(1) != to.dim(1)) {
    throw Error("gather_rows from " + from.shape().to_string() + " to " + to.shape().to_string() +
                ": the dtypes and the columns must be equal");
  }
}

/// `wide` has a column for each index, `narrow` those that the indices name.
inline void require_column_gather(Tensor const& wide, Tensor const& index, Tensor const& narrow) {
  index.require(DType::int32, Shape{wide.dim(1)}, "the columns' index");
  if (wide.dtype() != narrow.dtype() || wide.dim(0) != narrow.dim(0)) {
    throw Error("columns gathered between " + narrow.shape().to_string() + " and " + wide.shape().to_string() +
                ": the dtypes and the rows must be equal");
  }
}

}  // namespace heddle::kernels
