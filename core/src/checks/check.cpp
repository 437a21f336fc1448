#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/library.hpp>
#include <heddle/core/base/spelling.hpp>
#include <heddle/core/checks/check.hpp>

#include "library.hpp"

namespace heddle {

namespace {

std::vector<Checked> everything(Registries const& registries) {
  std::vector<Checked> all;
  for (AnyKernelRegistry const* const registry : registries.kernels.all()) {
    for (Implementation const& each : registry->implementations()) {
      all.push_back({std::string(registry->operation()), each.name, each.origin});
    }
  }
  for (LayerRegistry::Entry const& entry : registries.layers.entries()) {
    all.push_back({"", entry.name, entry.origin});
  }
  return all;
}

template <class Chosen>
std::vector<CheckResult> check_where(Registries const& registries, Execution& execution, Chosen const& chosen) {
  std::vector<Checked> all = everything(registries);
  std::erase_if(all, [&](Checked const& each) { return !chosen(each); });
  std::vector<CheckResult> results;
  if (!all.empty()) {
    auto* const check =
        reinterpret_cast<decltype(&heddle_check)>(function_beside_core("libheddle_checks.so", "heddle_check"));
    check(registries, all, execution, results);
  }
  return results;
}

}  // namespace

CheckResult const* first_fault(std::vector<CheckResult> const& results) {
  auto const found = std::ranges::find_if_not(results, &std::string::empty, &CheckResult::fault);
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

std::vector<CheckResult> check_all(Registries const& registries, Execution& execution) {
  return check_where(registries, execution, [](Checked const&) { return true; });
}

std::vector<CheckResult> check_origin(Registries const& registries, std::string const& origin, Execution& execution) {
  return check_where(registries, execution, [&](Checked const& each) { return each.origin == origin; });
}

std::vector<CheckResult> check_named(Registries const& registries, std::string const& name, Execution& execution) {
  auto results = check_where(registries, execution, [&](Checked const& each) {
    return each.name == name || each.operation == name || each.origin == name ||
           fmt::format("{}.{}", each.operation, each.name) == name;
  });
  auto const from_there = [&](auto const& entry) { return entry.origin == name; };
  bool const unchecked = std::ranges::any_of(registries.tasks.entries(), from_there) ||
                         std::ranges::any_of(registries.schedules.entries(), from_there) ||
                         std::ranges::any_of(registries.metrics.entries(), from_there) ||
                         std::ranges::any_of(registries.layers.inputs.entries(), from_there);
  if (results.empty() && !unchecked) {
    std::vector<std::string> names;
    for (Checked const& each : everything(registries)) {
      names.push_back(each.operation.empty() ? each.name : fmt::format("{}.{}", each.operation, each.name));
    }
    throw ConfigError("there is no implementation or layer '{}' to check; {}", name,
                      nearest_or_all(name, names, "an operation"));
  }
  return results;
}

}  // namespace heddle
