#include <array>
#include <heddle/core/base/operation_names.hpp>

namespace heddle {

std::span<std::string_view const> operation_names() {
#define EACH(name) #name,  // HEDDLE_OPERATIONS is EACH(name) for each of them (CMakeLists.txt)
  static constexpr auto names = std::to_array<std::string_view>({HEDDLE_OPERATIONS});
#undef EACH
  return names;
}

}  // namespace heddle
