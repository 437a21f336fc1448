#include <fmt/format.h>

#include <heddle/core/operations/observation.hpp>
#include <heddle/core/operations/tensor_ops.hpp>

namespace heddle {

namespace {

class ObservedTensorOps final : public ObservedKernel<TensorOps> {
 public:
  using ObservedKernel::ObservedKernel;

  void fill(Execution& execution, Tensor const& tensor, double value) override {
    pass(
        execution, [&] { return description("fill", {tensor}); },
        [=, &execution](TensorOps& kernel) { kernel.fill(execution, tensor, value); });
  }
  void add(Execution& execution, Tensor const& into, Tensor const& from) override {
    pass(
        execution,
        [&] {
          return description("add", {into, into, from});
        },
        [=, &execution](TensorOps& kernel) { kernel.add(execution, into, from); });
  }
  void copy(Execution& execution, Tensor const& from, Tensor const& to) override {
    pass(
        execution,
        [&] {
          return description("copy", {from, to});
        },
        [=, &execution](TensorOps& kernel) { kernel.copy(execution, from, to); });
  }
  void add_column_sums(Execution& execution, Tensor const& matrix, Tensor const& sums) override {
    pass(
        execution,
        [&] {
          return description("column sums", {matrix, sums, sums});
        },
        [=, &execution](TensorOps& kernel) { kernel.add_column_sums(execution, matrix, sums); });
  }
  void add_sum_of_squares(Execution& execution, Tensor const& tensor, Tensor const& sum) override {
    pass(
        execution, [&] { return description("sum of squares", {tensor}); },
        [=, &execution](TensorOps& kernel) { kernel.add_sum_of_squares(execution, tensor, sum); });
  }
  void gather_rows(Execution& execution, Tensor const& from, Tensor const& index, Tensor const& to) override {
    pass(
        execution,
        [&] {
          return description("gather rows", {to, to, index});
        },
        [=, &execution](TensorOps& kernel) { kernel.gather_rows(execution, from, index, to); });
  }
  void gather_columns(Execution& execution, Tensor const& from, Tensor const& index, Tensor const& to) override {
    pass(
        execution,
        [&] {
          return description("gather columns", {to, to, index});
        },
        [=, &execution](TensorOps& kernel) { kernel.gather_columns(execution, from, index, to); });
  }
  void add_gathered_columns(Execution& execution, Tensor const& from, Tensor const& index,
                            Tensor const& into) override {
    pass(
        execution,
        [&] {
          return description("add gathered columns", {from, into, into, index});
        },
        [=, &execution](TensorOps& kernel) { kernel.add_gathered_columns(execution, from, index, into); });
  }
  void rotate(Execution& execution, Tensor const& matrix, Rotation const& rotation) override {
    pass(
        execution,
        [&] {
          return description("rotate", {matrix, matrix, rotation.position});
        },
        [=, &execution](TensorOps& kernel) { kernel.rotate(execution, matrix, rotation); });
  }

 private:
  /// The first tensor gives extents and dtype.
  static CallDescription description(std::string_view direction, std::initializer_list<Tensor> tensors) {
    Tensor const& first = *tensors.begin();
    return {.direction = direction,
            .variant = "",
            .extents = first.shape().to_string(),
            .dtype = first.dtype(),
            .cost = {0, bytes_of(tensors)}};
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
