#include <fmt/format.h>

#include <heddle/core/operations/attention_score.hpp>
#include <heddle/core/operations/observation.hpp>

namespace heddle {

std::string describe(AttentionScoreProblem const& problem) {
  return fmt::format("the score '{}' in {}", problem.function, name_of(problem.dtype));
}

std::shared_ptr<AttentionScore> AttentionScore::observed(ObservedSelection<AttentionScore> selection) {
  return std::move(selection.selected);
}

}  // namespace heddle
