#include <fmt/format.h>

#include <heddle/core/base/error.hpp>
#include <heddle/core/operations/observation.hpp>
#include <heddle/core/operations/recurrence.hpp>

namespace heddle {

namespace {

class ObservedRecurrence final : public ObservedKernel<Recurrence> {
 public:
  using ObservedKernel::ObservedKernel;

  void forward(Execution& execution, RecurrenceCall const& call, Tensor const& output) override {
    pass<&Recurrence::forward>(execution, traffic("forward", {call.input, call.gate, output}), call, output);
  }
  void backward(Execution& execution, RecurrenceCall const& call, Tensor const& output, Tensor const& grad_output,
                RecurrenceGradients const& gradients) override {
    pass<&Recurrence::backward>(
        execution, traffic("backward", {call.input, call.gate, output, grad_output, gradients.input, gradients.gate}),
        call, output, grad_output, gradients);
  }
};

}  // namespace

std::string describe(RecurrenceProblem const& problem) {
  return fmt::format("rows of {}", name_of(problem.dtype));
}

Cost forward_cost(RecurrenceProblem const& problem, double elements) {
  return {0, 3 * elements * static_cast<double>(size_of(problem.dtype))};
}

std::shared_ptr<Recurrence> Recurrence::observed(ObservedSelection<Recurrence> selection) {
  return std::make_shared<ObservedRecurrence>(std::move(selection));
}

void require_call(RecurrenceCall const& call, Tensor const& output) {
  Tensor const& x = call.input;
  output.require(x.dtype(), x.shape(), "a recurrence's output");
  if (call.gate.empty()) {
    call.position.require(DType::int32, Shape{x.dim(0)}, "a recurrence's position");
  } else {
    call.gate.require(x.dtype(), x.shape(), "a recurrence's gate");
  }
  if (!call.state.empty()) {
    call.state.require(statistics_dtype(x.dtype()), Shape{call.sequences.count, x.dim(1)}, "a recurrence's state");
  }
}

void require_gradients(RecurrenceCall const& call, Tensor const& grad_output, RecurrenceGradients const& gradients) {
  Tensor const& x = call.input;
  grad_output.require(x.dtype(), x.shape(), "a recurrence's gradient");
  gradients.input.require(x.dtype(), x.shape(), "a recurrence's gradient of its input");
  if (!call.gate.empty()) {
    gradients.gate.require(x.dtype(), x.shape(), "a recurrence's gradient of its gate");
  }
  if (!call.state.empty()) {
    throw Error("a recurrence has no gradients of a call with a state, which is a step of decoding");
  }
}

}  // namespace heddle
