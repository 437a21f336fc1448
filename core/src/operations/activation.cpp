#include <fmt/format.h>

#include <heddle/core/operations/activation.hpp>
#include <heddle/core/operations/observation.hpp>

namespace heddle {

namespace {

class ObservedActivation final : public ObservedKernel<Activation> {
 public:
  using ObservedKernel::ObservedKernel;

  void forward(Execution& execution, ActivationCall const& call, Tensor const& output) override {
    pass(
        execution, call.problem(),
        [&] {
          return description("forward", call, bytes_of({call.input, call.gate, output}));
        },
        [=, &execution](Activation& kernel) { kernel.forward(execution, call, output); });
  }

  void backward(Execution& execution, ActivationCall const& call, Tensor const& grad_output,
                ActivationGradients const& gradients) override {
    pass(
        execution, call.problem(),
        [&] {
          return description("backward", call,
                             bytes_of({call.input, call.gate, grad_output, gradients.input, gradients.gate}));
        },
        [=, &execution](Activation& kernel) { kernel.backward(execution, call, grad_output, gradients); });
  }

 private:
  static CallDescription description(std::string_view direction, ActivationCall const& call, double bytes) {
    return {.direction = direction,
            .variant = call.gate.empty() ? "" : "gated",
            .extents = call.input.shape().to_string(),
            .dtype = call.input.dtype(),
            .cost = {0, bytes}};
  }
};

}  // namespace

std::string describe(ActivationProblem const& problem) {
  return fmt::format("the function '{}'{} in {} (relu, gelu, gelu_tanh and silu are built in, plug-ins add others)",
                     problem.function, problem.gated ? ", gated," : "", name_of(problem.dtype));
}

std::string timing_key(ActivationProblem const& problem) {
  return fmt::format("{}{} of {}", problem.function, problem.gated ? ", gated," : "", name_of(problem.dtype));
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
