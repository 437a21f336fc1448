#include <fmt/format.h>

#include <heddle/core/base/error.hpp>
#include <heddle/core/operations/observation.hpp>
#include <heddle/core/operations/tensor_ops.hpp>

namespace heddle {

namespace {

class ObservedTensorOps final : public ObservedKernel<TensorOps> {
 public:
  using ObservedKernel::ObservedKernel;

  void fill(Execution& execution, Tensor const& tensor, double value) override {
    pass<&TensorOps::fill>(execution, traffic("fill", {tensor}), tensor, value);
  }
  void scale(Execution& execution, Tensor const& tensor, double factor) override {
    pass<&TensorOps::scale>(execution, traffic("scale", {tensor, tensor}), tensor, factor);
  }
  void add(Execution& execution, Tensor const& into, Tensor const& from) override {
    pass<&TensorOps::add>(execution, traffic("add", {into, into, from}), into, from);
  }
  void mix(Execution& execution, Tensor const& into, Tensor const& from, Tensor const& share) override {
    pass<&TensorOps::mix>(execution, traffic("mix", {into, into, from}), into, from, share);
  }
  void copy(Execution& execution, Tensor const& from, Tensor const& to) override {
    pass<&TensorOps::copy>(execution, traffic("copy", {from, to}), from, to);
  }
  void add_column_sums(Execution& execution, Tensor const& matrix, Tensor const& sums) override {
    pass<&TensorOps::add_column_sums>(execution, traffic("column sums", {matrix, sums, sums}), matrix, sums);
  }
  void add_sum_of_squares(Execution& execution, Tensor const& tensor, Tensor const& sum) override {
    pass<&TensorOps::add_sum_of_squares>(execution, traffic("sum of squares", {tensor}), tensor, sum);
  }
  void copy_rows(Execution& execution, Tensor const& from, Tensor const& index, Tensor const& to,
                 Tensor const& place) override {
    Tensor const& rows = place.empty() ? to : from;
    pass<&TensorOps::copy_rows>(execution, traffic("copy rows", {rows, rows}), from, index, to, place);
  }
  void gather_columns(Execution& execution, Tensor const& from, Tensor const& index, Tensor const& to) override {
    pass<&TensorOps::gather_columns>(execution, traffic("gather columns", {to, to, index}), from, index, to);
  }
  void add_gathered_columns(Execution& execution, Tensor const& from, Tensor const& index,
                            Tensor const& into) override {
    pass<&TensorOps::add_gathered_columns>(execution, traffic("add gathered columns", {from, into, into, index}), from,
                                           index, into);
  }
  void rotate(Execution& execution, Tensor const& matrix, Rotation const& rotation) override {
    pass<&TensorOps::rotate>(execution, traffic("rotate", {matrix, matrix, rotation.position}), matrix, rotation);
  }
  void cap(Execution& execution, Tensor const& values, double limit) override {
    pass<&TensorOps::cap>(execution, traffic("cap", {values, values}), values, limit);
  }
  void cap_backward(Execution& execution, Tensor const& capped, Tensor const& gradient, double limit) override {
    pass<&TensorOps::cap_backward>(execution, traffic("cap backward", {capped, gradient, gradient}), capped, gradient,
                                   limit);
  }
};

}  // namespace

std::string describe(TensorOpsProblem const& problem) {
  return fmt::format("tensors of {}", name_of(problem.dtype));
}

std::shared_ptr<TensorOps> TensorOps::observed(ObservedSelection<TensorOps> selection) {
  return std::make_shared<ObservedTensorOps>(std::move(selection));
}

void TensorOps::require_same_shape(Tensor const& from, Tensor const& to, char const* method) {
  if (!(from.shape() == to.shape())) {
    throw Error("{} from {} to {}: the shapes must be equal", method, from.shape().to_string(), to.shape().to_string());
  }
}

void TensorOps::require_sum_of_squares(Tensor const& tensor, Tensor const& sum) {
  if (!tensor.contiguous()) {
    throw Error("add_sum_of_squares of a tensor with strided rows: it must be contiguous");
  }
  sum.require(DType::float64, {1}, "add_sum_of_squares' sum");
}

void TensorOps::require_rotation(Tensor const& matrix, Rotation const& rotation) {
  rotation.position.require(DType::int32, Shape{matrix.dim(0)}, "rotate's position");
  Tensor const& table = rotation.table;
  std::int64_t const width = table.dim(1);
  if (table.dtype() != statistics_dtype(matrix.dtype()) || width % 2 != 0 || matrix.dim(1) % width != 0) {
    throw Error(
        "rotate of {} by a table {}: the table's columns are even, divide the matrix's and are in its dtype of "
        "statistics",
        matrix.shape().to_string(), table.shape().to_string());
  }
}

void TensorOps::require_row_copy(Tensor const& from, Tensor const& index, Tensor const& to, Tensor const& place) {
  Shape const count{place.empty() ? to.dim(0) : place.dim(0)};
  if (!place.empty()) {
    place.require(DType::int32, count, "copy_rows' place");
  }
  if (!index.empty()) {
    index.require(DType::int32, count, "copy_rows' index");
  }
  if (from.dtype() != to.dtype() || from.dim(1) != to.dim(1) || (index.empty() && from.dim(0) != count[0])) {
    throw Error("copy_rows from {} to {}: the dtypes and the columns must be equal, and without an index the rows",
                from.shape().to_string(), to.shape().to_string());
  }
}

void TensorOps::require_column_gather(Tensor const& wide, Tensor const& index, Tensor const& narrow) {
  index.require(DType::int32, Shape{wide.dim(1)}, "the columns' index");
  if (wide.dtype() != narrow.dtype() || wide.dim(0) != narrow.dim(0)) {
    throw Error("columns gathered between {} and {}: the dtypes and the rows must be equal", narrow.shape().to_string(),
                wide.shape().to_string());
  }
}

}  // namespace heddle
