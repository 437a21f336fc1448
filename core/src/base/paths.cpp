#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <heddle/core/base/paths.hpp>
#include <iterator>
#include <system_error>

namespace heddle {

std::string open_problem(std::filesystem::path const& path, int error) {
  if (error != ENOENT && error != ENOTDIR) {
    return fmt::format("{}: cannot be opened: {}", path.string(), std::strerror(error));
  }
  std::error_code unknown;
  std::filesystem::path const working = std::filesystem::current_path(unknown);
  return fmt::format("{}: does not exist{}", path.string(),
                     path.is_absolute() || unknown ? "" : fmt::format(" (relative to {})", working.string()));
}

std::string missing_file(std::filesystem::path const& path) {
  return open_problem(path, ENOENT);
}

std::string file_problem(std::filesystem::path const& path) {
  std::error_code error;
  switch (std::filesystem::status(path, error).type()) {
    case std::filesystem::file_type::regular:
      return "";
    case std::filesystem::file_type::not_found:
    case std::filesystem::file_type::none:
      return open_problem(path, error.value());
    case std::filesystem::file_type::directory:
      return path.string() + ": is a directory";
    default:
      return path.string() + ": is not a regular file";
  }
}

FileText read_file_text(std::filesystem::path const& path, std::uintmax_t max_bytes) {
  if (std::string problem = file_problem(path); !problem.empty()) {
    return {.problem = std::move(problem)};
  }
  std::error_code ignored;
  if (std::filesystem::file_size(path, ignored) > max_bytes) {
    return {.problem = fmt::format("{}: is larger than {} MiB", path.string(), max_bytes >> 20)};
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return {.problem = open_problem(path, errno)};
  }
  return {.text = {std::istreambuf_iterator<char>(file), {}}};
}

}  // namespace heddle
