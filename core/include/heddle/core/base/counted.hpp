#pragma once

#include <concepts>
#include <heddle/core/base/readable.hpp>
#include <string>

namespace heddle {

/// "1 layout", "1,200 layouts".
std::string counted(std::integral auto count, char const* thing) {
  return readable_count(count) + ' ' + thing + (count == 1 ? "" : "s");
}

}  // namespace heddle
