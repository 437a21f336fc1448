#include <fmt/format.h>

#include <heddle/core/operations/adam.hpp>
#include <heddle/core/operations/observation.hpp>

namespace heddle {

namespace {

class ObservedAdam final : public ObservedKernel<Adam> {
 public:
  using ObservedKernel::ObservedKernel;

  void update(Execution& execution, AdamCall const& call) override {
    pass(
        execution, [&] { return description(call); },
        [=, &execution](Adam& kernel) { kernel.update(execution, call); });
  }

 private:
  static CallDescription description(AdamCall const& call) {
    DType const dtype = call.value.dtype();
    return {.direction = "update",
            .variant = "",
            .extents = fmt::format("{} elements", call.value.size()),
            .dtype = dtype,
            .cost = heddle::cost(AdamProblem{dtype}, static_cast<double>(call.value.size()))};
  }
};

}  // namespace

std::string describe(AdamProblem const& problem) {
  return fmt::format("parameters of {}", name_of(problem.dtype));
}

std::string timing_key(AdamProblem const& problem) {
  return describe(problem);
}

Cost cost(AdamProblem const& problem, double elements) {
  // The gradient is read; the value and both moments are read and written.
  return {0, 7 * elements * static_cast<double>(size_of(problem.dtype))};
}

std::shared_ptr<Adam> Adam::observed(ObservedSelection<Adam> selection) {
  return std::make_shared<ObservedAdam>(std::move(selection));
}

}  // namespace heddle
