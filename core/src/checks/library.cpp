#include "library.hpp"

#include <heddle/core/trials/trials.hpp>

void heddle_check(heddle::Registries const& registries, std::vector<heddle::Checked> const& chosen,
                  heddle::Execution& execution, std::vector<heddle::CheckResult>& results) {
  heddle::Registries with_trials = registries;
  heddle::add_built_in_trials(with_trials.kernels);
  for (heddle::Checked const& each : chosen) {
    auto const found = each.operation.empty() ? check_layer(with_trials, each.name, execution)
                                              : check_kernel(with_trials.kernels, each.operation, each.name, execution);
    results.insert(results.end(), found.begin(), found.end());
  }
}
