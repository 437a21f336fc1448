#include <fmt/format.h>

#include <heddle/core/base/paths.hpp>
#include <system_error>

namespace heddle {

std::string relative_to(std::filesystem::path const& path) {
  std::error_code problem;
  std::filesystem::path const working = std::filesystem::current_path(problem);
  return path.is_absolute() || problem ? "" : fmt::format(" (relative to {})", working.string());
}

}  // namespace heddle
