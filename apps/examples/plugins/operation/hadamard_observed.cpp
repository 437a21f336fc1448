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
    pass<&Hadamard::forward>(execution, heddle::traffic("forward", {a, b, output}), a, b, output);
  }
  void backward(heddle::Execution& execution, heddle::Tensor const& a, heddle::Tensor const& b,
                heddle::Tensor const& grad_output, Gradients const& gradients) override {
    pass<&Hadamard::backward>(execution, heddle::traffic("backward", {a, b, grad_output, gradients.a, gradients.b}), a,
                              b, grad_output, gradients);
  }
};

}  // namespace

std::string describe(HadamardProblem const& problem) {
  return "products of " + std::string(heddle::name_of(problem.dtype));
}

std::shared_ptr<Hadamard> Hadamard::observed(heddle::ObservedSelection<Hadamard> selection) {
  return std::make_shared<ObservedHadamard>(std::move(selection));
}

}  // namespace hadamard_plugin
