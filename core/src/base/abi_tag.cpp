#include <heddle/core/base/abi_tag.hpp>
#include <heddle/core/base/compiled_abi_tag.hpp>

namespace heddle {

std::string abi_tag() {
  return plugin::compiled_abi_tag();
}

}  // namespace heddle
