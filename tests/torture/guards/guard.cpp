#include "guard.hpp"

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace heddle::test {

bool guard(char const* name) {
  static char const* const removed = std::getenv("HEDDLE_GUARD_REMOVED");
  if (removed == nullptr || std::string_view(removed) != name) {
    return true;
  }
  static bool const said = std::fprintf(stderr, "reached without its guard: %s\n", name) > 0;
  return !said;
}

}  // namespace heddle::test
