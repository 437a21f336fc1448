#include "run_directory.hpp"

#include <fmt/format.h>

#include <heddle/core/base/error.hpp>
#include <heddle/io/files/replace_file.hpp>
#include <utility>

namespace heddle {

namespace {

FileLock open_lock(std::filesystem::path const& directory) {
  try {
    make_directory(directory);
    return FileLock(directory / ".lock");
  } catch (Error const& problem) {
    throw ConfigError(fmt::format("run.directory {}: {}", directory.string(), problem.what()));
  }
}

FileLock::Result take(FileLock& lock, std::filesystem::path const& directory) {
  try {
    return lock.try_take(FileLock::Kind::exclusive);
  } catch (Error const& problem) {
    throw ConfigError(
        fmt::format("run.directory {} cannot be locked, and without its lock a second process could train "
                    "in it: {}",
                    directory.string(), problem.what()));
  }
}

}  // namespace

RunDirectory::RunDirectory(std::filesystem::path directory, FileLock lock, bool locked)
    : directory_(std::move(directory)), lock_(std::move(lock)), locked_(locked) {}

RunDirectory RunDirectory::open(std::filesystem::path const& directory) {
  FileLock lock = open_lock(directory);
  FileLock::Result const result = take(lock, directory);
  if (result == FileLock::Result::busy) {
    throw ConfigError(fmt::format("another process is training in {}; wait for it, or set another run.directory",
                                  directory.string()));
  }
  return {directory, std::move(lock), result == FileLock::Result::taken};
}

void RunDirectory::replace_file(std::string_view name, std::string_view text) const {
  heddle::replace_file(directory_ / name, text);
}

}  // namespace heddle
