#include <algorithm>
#include <array>
#include <heddle/core/config/kernel_choices.hpp>

namespace heddle {

std::span<std::string_view const> operation_names() {
#define EACH(name) #name,  // HEDDLE_OPERATIONS is EACH(name) for each of them (CMakeLists.txt)
  static constexpr auto names = std::to_array<std::string_view>({HEDDLE_OPERATIONS});
#undef EACH
  return names;
}

KernelChoices::KernelChoices(std::string const& implementation) {
  for (std::string_view const name : operation_names()) {
    choose(name, implementation);
  }
}

KernelChoices::Choice const& KernelChoices::choice(std::string_view operation) const {
  static Choice const by_speed_or_times;
  auto const found = std::ranges::find(operations_, operation, &Operation::first);
  return found == operations_.end() ? by_speed_or_times : found->second;
}

void KernelChoices::choose(std::string_view operation, std::string implementation, std::string origin) {
  auto found = std::ranges::find(operations_, operation, &Operation::first);
  if (found == operations_.end()) {
    found = operations_.insert(found, Operation(operation, Choice()));
  }
  found->second = {std::move(implementation), std::move(origin)};
}

}  // namespace heddle
