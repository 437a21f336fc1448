#include <heddle/core/operations/observation.hpp>

#include "hadamard.hpp"

namespace hadamard_plugin {
namespace {

/// Reports the calls and their costs: for `heddle kernels --benchmark`, and for the memory plan, which calls nothing.
class ObservedHadamard final : public heddle::ObservedKernel<Hadamard> {
 public:
  using ObservedKernel::ObservedKernel;

  void forward(heddle::Execution& execution, heddle::Tensor const& a, heddle::Tensor const& b,
               heddle::Tensor const& output) override {
    pass(
        execution,
        [&] {
          return description("forward", {a, b, output});
        },
        [=, &execution](Hadamard& kernel) { kernel.forward(execution, a, b, output); });
  }

  void backward(heddle::Execution& execution, heddle::Tensor const& a, heddle::Tensor const& b,
                heddle::Tensor const& grad_output, Gradients const& gradients) override {
    pass(
        execution,
        [&] {
          return description("backward", {a, b, grad_output, gradients.a, gradients.b});
        },
        [=, &execution](Hadamard& kernel) { kernel.backward(execution, a, b, grad_output, gradients); });
  }

 private:
  static heddle::CallDescription description(std::string_view direction,
                                             std::initializer_list<heddle::Tensor> tensors) {
    heddle::Tensor const& first = *tensors.begin();
    return {.direction = direction,
            .variant = "",
            .extents = first.shape().to_string(),
            .dtype = first.dtype(),
            .cost = {.operations = 0, .bytes = heddle::bytes_of(tensors)}};
  }
};

}  // namespace

std::string describe(HadamardProblem const& problem) {
  return "products of " + std::string(heddle::name_of(problem.dtype));
}

std::string timing_key(HadamardProblem const& problem) {
  return describe(problem);
}

std::shared_ptr<Hadamard> Hadamard::observed(heddle::ObservedSelection<Hadamard> selection) {
  return std::make_shared<ObservedHadamard>(std::move(selection));
}

}  // namespace hadamard_plugin
