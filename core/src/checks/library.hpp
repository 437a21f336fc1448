#pragma once

#include <heddle/core/checks/check.hpp>
#include <heddle/core/layers/registries.hpp>
#include <string>
#include <vector>

namespace heddle {

/// An implementation of an operation, or a layer, whose operation is empty.
struct Checked {
  std::string operation, name, origin;
};

}  // namespace heddle

/// The function of libheddle_checks.so that the core library calls: adds the results of check_kernel and check_layer,
/// with the built-in trials and the plug-ins' own. Training without plug-ins does not load that library.
extern "C" void heddle_check(heddle::Registries const& registries, std::vector<heddle::Checked> const& chosen,
                             heddle::Execution& execution, std::vector<heddle::CheckResult>& results);
