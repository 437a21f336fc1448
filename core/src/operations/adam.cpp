#include <fmt/format.h>

#include <cmath>
#include <heddle/core/operations/adam.hpp>
#include <heddle/core/operations/observation.hpp>

namespace heddle {

namespace {

class ObservedAdam final : public ObservedKernel<Adam> {
 public:
  using ObservedKernel::ObservedKernel;

  void update(Execution& execution, AdamCall const& call) override {
    CallDescription const description{.direction = "update",
                                      .variant = "",
                                      .extents = fmt::format("{} elements", call.value.size()),
                                      .dtype = call.value.dtype(),
                                      .cost = heddle::cost(call.problem(), static_cast<double>(call.value.size()))};
    pass<&Adam::update>(execution, description, call);
  }
};

}  // namespace

std::string describe(AdamProblem const& problem) {
  return fmt::format("parameters of {}", name_of(problem.dtype));
}

Cost cost(AdamProblem const& problem, double elements) {
  // The gradient is read; the value and both moments are read and written.
  return {0, elements * 7 * static_cast<double>(size_of(problem.dtype))};
}

std::array<double, adam_scalars::count> adam_scalars_of(double beta1, double beta2, AdamStep const& step) {
  auto const at = static_cast<double>(step.step);
  return {step.learning_rate, step.gradient_scale, 1 - std::pow(beta1, at), 1 - std::pow(beta2, at)};
}

void write_adam_scalars(AdamCall const& call, AdamStep const& step) {
  call.scalars.require(DType::float64, {adam_scalars::count}, "Adam's scalars");
  copy_from_host(call.scalars, adam_scalars_of(call.beta1, call.beta2, step).data());
}

std::shared_ptr<Adam> Adam::observed(ObservedSelection<Adam> selection) {
  return std::make_shared<ObservedAdam>(std::move(selection));
}

}  // namespace heddle
