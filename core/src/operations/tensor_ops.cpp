#include <fmt/format.h>

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
  void add(Execution& execution, Tensor const& into, Tensor const& from) override {
    pass<&TensorOps::add>(execution, traffic("add", {into, into, from}), into, from);
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
  void gather_rows(Execution& execution, Tensor const& from, Tensor const& index, Tensor const& to) override {
    pass<&TensorOps::gather_rows>(execution, traffic("gather rows", {to, to, index}), from, index, to);
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
};

}  // namespace

std::string describe(TensorOpsProblem const& problem) {
  return fmt::format("tensors of {}", name_of(problem.dtype));
}

std::string timing_key(TensorOpsProblem const& problem) {
  return describe(problem);
}

std::shared_ptr<TensorOps> TensorOps::observed(ObservedSelection<TensorOps> selection) {
  return std::make_shared<ObservedTensorOps>(std::move(selection));
}

double sum_of_squares(TensorOps& operations, Execution& execution, Tensor const& tensor) {
  Tensor const sum = Tensor::allocate(DType::float64, {1});
  operations.add_sum_of_squares(execution, tensor, sum);
  return to_host<double>(sum).front();
}

}  // namespace heddle
