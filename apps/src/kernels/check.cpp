#include "check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/checks/check.hpp>
#include <heddle/core/tasks/corpus_metric.hpp>
#include <heddle/io/text/text.hpp>
#include <utility>

#include "run/metrics/measure.hpp"

namespace heddle {
namespace {

std::string title(CheckResult const& result) {
  return fmt::format("{} {} ({})", result.operation, result.implementation, result.origin);
}

/// Whether a training run may use it: it refuses a plug-in's implementation that nothing was compared with.
bool accepted(CheckResult const& result) {
  return result.fault.empty() && (result.not_run.empty() || result.origin == "built-in");
}

/// A line of the table: a title, or a problem with its result.
struct Line {
  std::string text;
  CheckResult const* result = nullptr;
};

/// The columns start after the longest problem.
void print_lines(std::vector<Line> const& lines) {
  std::size_t width = 0;
  for (Line const& line : lines) {
    width = std::max(width, line.result == nullptr ? 0 : decode_utf8(line.text).size());
  }
  fmt::print("  {:<{}} {:>9} {:>9} {:>10}\n", "", width, "output", "gradient", "");
  fmt::print("  {:<{}} {:>9} {:>9} {:>10}\n", "problem", width, "error", "error", "tolerance");
  for (auto const& [text, result] : lines) {
    if (result == nullptr) {
      fmt::print("{}\n", text);
    } else {
      fmt::print("  {:<{}} {:>9.2g} {:>9.2g} {:>10.2g} {}\n", text, width, result->output_error, result->gradient_error,
                 result->tolerance, result->passed() ? "passed" : "WRONG: " + result->fault);
    }
  }
}

/// The result of an implementation or a layer that comes nearest to its tolerance, or exceeds it.
CheckResult const& worst(std::vector<CheckResult> const& results) {
  auto const share = [](CheckResult const& result) {
    double const error = std::max(result.output_error, result.gradient_error);
    return result.passed() && result.tolerance > 0 ? error / result.tolerance : error;
  };
  return *std::max_element(results.begin(), results.end(), [&](CheckResult const& first, CheckResult const& second) {
    return share(first) < share(second);
  });
}

/// A call of a metric on a small corpus.
struct MetricCheck {
  MetricRegistry::Entry metric;
  std::string problem;  ///< "with sources"
  double value = 0;
  std::string fault;  ///< "" if it passed
};

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

/// Calls metrics on a small corpus, with and without sources: those of a name or an origin, or all if it is empty.
/// Their value must be finite and the same twice.
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

/// Prints the calls of metrics, of each one first what it is, and returns how many are wrong.
std::size_t print_metrics(std::vector<MetricCheck> const& checks) {
  std::size_t wrong = 0;
  std::string last;
  for (auto const& [entry, problem, value, fault] : checks) {
    if (std::exchange(last, entry.name) != entry.name) {
      fmt::print("metric {} ({})\n", entry.name, entry.origin);
    }
    fmt::print("  {}: {}\n", problem, fault.empty() ? fmt::format("{:.4g} passed", value) : "WRONG: " + fault);
    wrong += fault.empty() ? 0 : 1;
  }
  return wrong;
}

}  // namespace

ExitCode print_checks(Registries const& registries, std::string const& name, Execution& execution) {
  std::vector<CheckResult> results;
  if (name.empty()) {
    results = check_all(registries, execution);
  } else if (registries.metrics.find(name) == nullptr) {
    results = check_named(registries, name, execution);
  }
  std::vector<std::pair<std::string, std::vector<CheckResult>>> groups;
  for (CheckResult const& result : results) {
    if (groups.empty() || groups.back().first != title(result)) {
      groups.push_back({title(result), {}});
    }
    groups.back().second.push_back(result);
  }
  std::vector<Line> lines;
  std::size_t wrong = 0;
  std::size_t not_run = 0;
  for (auto const& [who, own] : groups) {
    if (!own.front().not_run.empty()) {
      ++not_run;
      lines.push_back({fmt::format("{}: NOT RUN: {}", who, own.front().not_run)});
      continue;
    }
    lines.push_back({fmt::format("{}: {}", who, counted(own.size(), "problem"))});
    for (CheckResult const& result : own) {
      wrong += result.passed() ? 0 : 1;
      if (!name.empty() || !result.passed()) {
        lines.push_back({result.problem, &result});
      }
    }
    if (name.empty() && first_fault(own) == nullptr) {
      lines.push_back({"nearest to its tolerance: " + worst(own).problem, &worst(own)});
    }
  }
  if (!lines.empty()) {
    print_lines(lines);
  }
  std::vector<MetricCheck> const metrics = check_metrics(registries.metrics, name);
  std::size_t const wrong_metrics = print_metrics(metrics);
  wrong += wrong_metrics;
  std::size_t const run = results.size() - not_run + metrics.size();
  fmt::print("{} of {} passed{}\n", readable_count(run - wrong), counted(run, "problem"),
             not_run == 0 ? "" : fmt::format(", {} not run", counted(not_run, "implementation")));
  return wrong_metrics == 0 && std::all_of(results.begin(), results.end(), accepted) ? ExitCode::done
                                                                                     : ExitCode::bad_config;
}

}  // namespace heddle
