#include "run_directory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <heddle/core/base/error.hpp>
#include <system_error>
#include <utility>

namespace heddle {

RunDirectory::RunDirectory(std::filesystem::path directory) : directory_(std::move(directory)) {
  std::error_code problem;
  std::filesystem::create_directories(directory_, problem);
  if (problem) {
    throw ConfigError(fmt::format("run.directory {}: {}", directory_.string(), problem.message()));
  }
  auto const file = directory_ / ".lock";
  lock_ = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock_ < 0) {
    throw ConfigError(fmt::format("{}: {}", file.string(), std::generic_category().message(errno)));
  }
  // A file system without locks has to do without.
  if (flock(lock_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    close(lock_);
    throw ConfigError(fmt::format("another process is training in {}; wait for it, or set another run.directory",
                                  directory_.string()));
  }
}

RunDirectory::~RunDirectory() {
  close(lock_);
}

void RunDirectory::replace_file(std::string_view name, std::string_view text) const {
  auto const file = directory_ / name;
  auto temporary = file;
  temporary += ".new";
  std::error_code problem;
  if (!(std::ofstream(temporary, std::ios::binary) << text << std::flush)) {
    std::filesystem::remove(temporary, problem);
    throw Error(fmt::format("{}: cannot be written (is the disk full?)", temporary.string()));
  }
  std::filesystem::rename(temporary, file, problem);
  if (problem) {
    throw Error(fmt::format("{}: {}", file.string(), problem.message()));
  }
}

}  // namespace heddle
