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
          return description("forward", call, bytes_of({call.input, output}));
        },
        [=, &execution](Activation& kernel) { kernel.forward(execution, call, output); });
  }

  void backward(Execution& execution, ActivationCall const& call, Tensor const& grad_output,
                Tensor const& grad_input) override {
    pass(
        execution, call.problem(),
        [&] {
          return description("backward", call, bytes_of({call.input, grad_output, grad_input}));
        },
        [=, &execution](Activation& kernel) { kernel.backward(execution, call, grad_output, grad_input); });
  }

 private:
  static CallDescription description(std::string_view direction, ActivationCall const& call, double bytes) {
    return {.direction = direction,
            .variant = "",
            .extents = call.input.shape().to_string(),
            .dtype = call.input.dtype(),
            .cost = {0, bytes}};
  }
};

}  // namespace

std::string describe(ActivationProblem const& problem) {
  return fmt::format("model.activation = '{}' in {} (relu and gelu are built in, plug-ins add others)",
                     problem.function, name_of(problem.dtype));
}

std::string timing_key(ActivationProblem const& problem) {
  return fmt::format("{} of {}", problem.function, name_of(problem.dtype));
}

Cost forward_cost(ActivationProblem const& problem, double elements) {
  return {0, 2 * elements * static_cast<double>(size_of(problem.dtype))};
}

Cost backward_cost(ActivationProblem const& problem, double elements) {
  return {0, 3 * elements * static_cast<double>(size_of(problem.dtype))};
}

std::shared_ptr<Activation> Activation::observed(ObservedSelection<Activation> selection) {
  return std::make_shared<ObservedActivation>(std::move(selection));
}

}  // namespace heddle
