#include <cmath>
#include <heddle/dist/training/finite_steps.hpp>

namespace heddle {

namespace {

bool is_finite(StepResult const& result) {
  return std::isfinite(result.loss) && std::isfinite(result.gradient_norm);
}

}  // namespace

FiniteSteps::Outcome FiniteSteps::run(std::function<StepResult()> const& step) {
  Outcome outcome{step()};
  if (!is_finite(outcome.result)) {
    outcome.repeated = true;
    outcome.result = step();
    outcome.skipped = !is_finite(outcome.result);
  }
  skipped_in_a_row_ = outcome.skipped ? skipped_in_a_row_ + 1 : 0;
  return outcome;
}

}  // namespace heddle
