#include "check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/checks/check.hpp>

namespace heddle {
namespace {

void print_result(std::string const& problem, CheckResult const& result) {
  fmt::print("  {:<64} {:>9.2g} {:>9.2g} {:>10.2g} {}\n", problem, result.output_error, result.gradient_error,
             result.tolerance, result.passed() ? "passed" : "WRONG: " + result.fault);
}

std::string title(CheckResult const& result) {
  return fmt::format("{} {} ({})", result.operation, result.implementation, result.origin);
}

/// Of one implementation or layer: the result that comes nearest to its tolerance, or exceeds it.
CheckResult const& worst(std::vector<CheckResult> const& results) {
  auto const share = [](CheckResult const& result) {
    double const error = std::max(result.output_error, result.gradient_error);
    return result.passed() && result.tolerance > 0 ? error / result.tolerance : error;
  };
  return *std::max_element(results.begin(), results.end(), [&](CheckResult const& first, CheckResult const& second) {
    return share(first) < share(second);
  });
}

}  // namespace

ExitCode print_checks(Registries const& registries, std::string const& name, Execution& execution) {
  std::vector<CheckResult> const results =
      name.empty() ? check_all(registries, execution) : check_named(registries, name, execution);
  std::vector<std::pair<std::string, std::vector<CheckResult>>> groups;
  for (CheckResult const& result : results) {
    if (groups.empty() || groups.back().first != title(result)) {
      groups.push_back({title(result), {}});
    }
    groups.back().second.push_back(result);
  }
  fmt::print("  {:<64} {:>9} {:>9} {:>10}\n", "", "output", "gradient", "");
  fmt::print("  {:<64} {:>9} {:>9} {:>10}\n", "problem", "error", "error", "tolerance");
  std::size_t wrong = 0;
  for (auto const& [who, own] : groups) {
    fmt::print("{}: {} problems\n", who, own.size());
    for (CheckResult const& result : own) {
      wrong += result.passed() ? 0 : 1;
      if (!name.empty() || !result.passed()) {
        print_result(result.problem, result);
      }
    }
    if (name.empty() && first_fault(own) == nullptr) {
      print_result("nearest to its tolerance: " + worst(own).problem, worst(own));
    }
  }
  fmt::print("{} of {} problems passed\n", results.size() - wrong, results.size());
  return wrong == 0 ? ExitCode::done : ExitCode::bad_config;
}

}  // namespace heddle
