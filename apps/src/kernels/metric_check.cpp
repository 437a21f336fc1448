#include "metric_check.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <heddle/core/base/error.hpp>

#include "run/metrics/measure.hpp"

namespace heddle {
namespace {

MetricCheck checked(MetricRegistry::Entry const& entry, bool with_sources) {
  // A right translation, a partly right one, a wrong one and an empty one.
  static std::array<std::string, 4> const sources{"A dog runs.", "Two men are sitting on a bench.",
                                                  "It is snowing in Zürich.", "Thank you."};
  static std::array<std::string, 4> const references{"Ein Hund läuft.", "Zwei Männer sitzen auf einer Bank.",
                                                     "Es schneit in Zürich.", "Danke."};
  static std::array<std::string, 4> const hypotheses{"Ein Hund läuft.", "Zwei Männer stehen auf einer Straße.",
                                                     "Guten Tag.", ""};
  MetricCheck check{entry, with_sources ? "with sources" : "without sources", 0, ""};
  TranslatedCorpus corpus{hypotheses, references, {}};
  if (with_sources) {
    corpus.sources = sources;
  }
  try {
    check.value = score_of(entry, corpus);
    double const again = score_of(entry, corpus);
    if (!std::isfinite(check.value)) {
      check.fault = "the value is not finite";
    } else if (again != check.value) {
      check.fault = fmt::format("a second call with the same text returns {}", again);
    }
  } catch (Error const& problem) {
    check.fault = problem.what();
  }
  return check;
}

}  // namespace

std::vector<MetricCheck> check_metrics(MetricRegistry const& metrics, std::string const& name) {
  std::vector<MetricCheck> checks;
  for (MetricRegistry::Entry const& entry : metrics.entries()) {
    if (name.empty() || entry.name == name || entry.origin == name) {
      checks.push_back(checked(entry, true));
      checks.push_back(checked(entry, false));
    }
  }
  return checks;
}

}  // namespace heddle
