#include <algorithm>
#include <heddle/core/base/operation_names.hpp>
#include <heddle/core/config/kernel_choices.hpp>

namespace heddle {

namespace {

template <class Operations>
auto find_operation(Operations& operations, std::string_view name) {
  return std::find_if(operations.begin(), operations.end(), [&](auto const& each) { return each.first == name; });
}

}  // namespace

KernelChoices::KernelChoices(std::string const& implementation) {
  for (std::string_view const name : operation_names()) {
    choose(name, implementation);
  }
}

KernelChoices::Choice const& KernelChoices::choice(std::string_view operation) const {
  static Choice const by_speed_or_times;
  auto const found = find_operation(operations_, operation);
  return found == operations_.end() ? by_speed_or_times : found->second;
}

void KernelChoices::choose(std::string_view operation, std::string implementation, std::string origin) {
  auto found = find_operation(operations_, operation);
  if (found == operations_.end()) {
    found = operations_.insert(found, Operation(operation, Choice()));
  }
  found->second = {std::move(implementation), std::move(origin)};
}

}  // namespace heddle
