#include <fmt/format.h>

#include <heddle/core/base/activation_functions.hpp>
#include <heddle/core/operations/activation.hpp>
#include <heddle/core/operations/observation.hpp>

namespace heddle {

namespace {

class ObservedActivation final : public ObservedKernel<Activation> {
 public:
  using ObservedKernel::ObservedKernel;

  void forward(Execution& execution, ActivationCall const& call, Tensor const& output) override {
    pass<&Activation::forward>(execution, traffic("forward", {call.input, call.gate, output}, variant_of(call)), call,
                               output);
  }
  void backward(Execution& execution, ActivationCall const& call, Tensor const& grad_output,
                ActivationGradients const& gradients) override {
    pass<&Activation::backward>(
        execution,
        traffic("backward", {call.input, call.gate, grad_output, gradients.input, gradients.gate}, variant_of(call)),
        call, grad_output, gradients);
  }

 private:
  static std::string_view variant_of(ActivationCall const& call) { return call.gate.empty() ? "" : "gated"; }
};

}  // namespace

std::string describe(ActivationProblem const& problem) {
  return fmt::format("the function '{}'{} in {} (built in: {}; plug-ins add others)", problem.function,
                     problem.gated ? ", gated," : "", name_of(problem.dtype), names_of_activations());
}

std::string timing_key(ActivationProblem const& problem) {
  return fmt::format("{}{} of {}", problem.function, problem.gated ? ", gated," : "", name_of(problem.dtype));
}

void require_gradients(ActivationCall const& call, Tensor const& grad_output, ActivationGradients const& gradients) {
  grad_output.require(call.input.dtype(), call.input.shape(), "an activation's grad_output");
  gradients.input.require(call.input.dtype(), call.input.shape(), "an activation's grad_input");
  if (!call.gate.empty()) {
    call.gate.require(call.input.dtype(), call.input.shape(), "an activation's gate");
    gradients.gate.require(call.input.dtype(), call.input.shape(), "an activation's grad_gate");
  }
}

Cost forward_cost(ActivationProblem const& problem, double elements) {
  return {0, (problem.gated ? 3 : 2) * elements * static_cast<double>(size_of(problem.dtype))};
}

Cost backward_cost(ActivationProblem const& problem, double elements) {
  return {0, (problem.gated ? 5 : 3) * elements * static_cast<double>(size_of(problem.dtype))};
}

std::shared_ptr<Activation> Activation::observed(ObservedSelection<Activation> selection) {
  return std::make_shared<ObservedActivation>(std::move(selection));
}

}  // namespace heddle
