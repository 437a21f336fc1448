#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/operations/registry.hpp>

namespace heddle::kernel_registry_errors {

void name_is_taken(std::string_view operation, std::string_view name, std::string_view origin) {
  throw ConfigError(
      fmt::format("the name '{}' of operation '{}' is taken by {}; each implementation needs its own name", name,
                  operation, origin));
}

void none_selected(std::string_view operation, std::string_view choice, std::vector<std::string> const& names,
                   std::string const& problem) {
  std::string const registered = fmt::format("registered: auto, {}", fmt::join(names, ", "));
  if (choice == "auto") {
    throw ConfigError(
        fmt::format("no implementation of operation '{}' supports {}; {}", operation, problem, registered));
  }
  if (std::find(names.begin(), names.end(), choice) == names.end()) {
    throw ConfigError(fmt::format("kernels.{} = '{}': no such implementation; {}", operation, choice, registered));
  }
  throw ConfigError(fmt::format("kernels.{} = '{}' does not support {}; {}", operation, choice, problem, registered));
}

}  // namespace heddle::kernel_registry_errors
