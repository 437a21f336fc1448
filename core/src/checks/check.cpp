#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/spelling.hpp>
#include <heddle/core/checks/check.hpp>
#include <heddle/core/checks/kernel_check.hpp>
#include <heddle/core/checks/layer_check.hpp>

namespace heddle {

namespace {

/// An implementation of an operation, or a layer, whose operation is empty.
struct Checked {
  std::string operation, name, origin;
};

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
  std::vector<CheckResult> results;
  for (Checked const& each : everything(registries)) {
    if (chosen(each)) {
      std::vector<CheckResult> const found =
          each.operation.empty() ? check_layer(registries, each.name, execution)
                                 : check_kernel(registries.kernels, each.operation, each.name, execution);
      results.insert(results.end(), found.begin(), found.end());
    }
  }
  return results;
}

}  // namespace

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
  if (results.empty()) {
    std::vector<std::string> names;
    for (Checked const& each : everything(registries)) {
      names.push_back(each.operation.empty() ? each.name : fmt::format("{}.{}", each.operation, each.name));
    }
    throw ConfigError(fmt::format("there is no implementation or layer '{}' to check; {}", name,
                                  nearest_or_all(name, names, ", or an operation")));
  }
  return results;
}

}  // namespace heddle
