// In place of core/src/base/digest.cpp: tensors without memory are not read.
#include <heddle/core/base/digest.hpp>

namespace heddle {

std::uint64_t digest(std::span<std::byte const> /*bytes*/) {
  return 0;
}

}  // namespace heddle
