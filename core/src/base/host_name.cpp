#include <unistd.h>

#include <array>
#include <heddle/core/base/host_name.hpp>

namespace heddle {

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) {
    return "unknown host";
  }
  return name.data();
}

}  // namespace heddle
