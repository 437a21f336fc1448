#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/checks/result.hpp>

namespace heddle {

CheckResult const* first_fault(std::vector<CheckResult> const& results) {
  auto const found =
      std::find_if(results.begin(), results.end(), [](CheckResult const& result) { return !result.fault.empty(); });
  return found == results.end() ? nullptr : &*found;
}

std::string subject(CheckResult const& result) {
  return result.operation == "layer"
             ? fmt::format("the layer '{}'", result.implementation)
             : fmt::format("the implementation '{}' of operation '{}'", result.implementation, result.operation);
}

std::string describe(CheckResult const& result) {
  return result.fault.empty() ? fmt::format("{} was not checked: {}", subject(result), result.not_run)
                              : fmt::format("{} is wrong: {}: {}", subject(result), result.problem, result.fault);
}

}  // namespace heddle
