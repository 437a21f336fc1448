#include "run_directory.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/host_name.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <random>
#include <sstream>
#include <thread>
#include <utility>

namespace heddle {

namespace {

constexpr char const* lock_name = ".lock";
constexpr char const* lease_name = ".lease";
constexpr char const* identity_name = ".identity";
/// The maximum size of a lock or an identity.
constexpr std::int64_t max_bytes = 4096;

FileLock open_lock(std::filesystem::path const& directory) {
  try {
    make_directory(directory);
    return FileLock(directory / lock_name);
  } catch (Error const& problem) {
    throw ConfigError("run.directory {}: {}", directory.string(), problem.what());
  }
}

/// A process that looks who holds the directory has the lock for a moment, so that a busy lock is tried once more.
FileLock::Result take(FileLock& lock, std::filesystem::path const& directory) {
  try {
    FileLock::Result const first = lock.try_take(FileLock::Kind::exclusive);
    if (first != FileLock::Result::busy) {
      return first;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    return lock.try_take(FileLock::Kind::exclusive);
  } catch (Error const& problem) {
    throw ConfigError(
        "run.directory {} cannot be locked, and without its lock a second process could train "
        "in it: {}",
        directory.string(), problem.what());
  }
}

/// Describes this process for others.
std::string own_description() {
  return fmt::format("process {} on {} since {} UTC", getpid(), host_name(), utc_now());
}

/// The first line of a lock's description, or "a process" where an earlier version wrote none.
std::string first_line(std::string const& description) {
  std::string const line = description.substr(0, description.find('\n'));
  return line.empty() ? "a process" : line;
}

[[noreturn]] void refuse(std::filesystem::path const& directory, std::string const& holder) {
  throw ConfigError("another process is training in {}: {}; wait for it, or set another run.directory",
                    directory.string(), holder);
}

}  // namespace

RunDirectory::RunDirectory(std::filesystem::path directory, FileLock lock, std::optional<FileLease> lease)
    : directory_(std::move(directory)), lock_(std::move(lock)), lease_(std::move(lease)) {}

RunDirectory RunDirectory::open(std::filesystem::path const& directory, std::function<void()> const& waiting) {
  FileLock lock = open_lock(directory);
  FileLock::Result const result = take(lock, directory);
  if (result == FileLock::Result::busy) {
    refuse(directory, first_line(lock.description()));
  }
  std::string const own = own_description();
  std::optional<FileLease> lease;
  if (result == FileLock::Result::not_supported) {
    std::string holder;
    try {
      lease = FileLease::take(directory / lease_name, own, holder, {}, waiting);
    } catch (Error const& problem) {
      throw ConfigError("run.directory {}: {}", directory.string(), problem.what());
    }
    if (!lease) {
      refuse(directory, holder);
    }
  } else {
    lock.describe(own + "\n");
  }
  return {directory, std::move(lock), std::move(lease)};
}

std::optional<std::string> RunDirectory::holder(std::filesystem::path const& directory) {
  if (!std::filesystem::exists(directory / lock_name)) {
    return std::nullopt;
  }
  FileLock lock(directory / lock_name);
  FileLock::Result const result = lock.try_take(FileLock::Kind::shared);
  if (result == FileLock::Result::not_supported) {
    return FileLease::holder(directory / lease_name, {});
  }
  return result == FileLock::Result::busy ? std::optional(first_line(lock.description())) : std::nullopt;
}

std::string RunDirectory::last_holder(std::filesystem::path const& directory) {
  if (!std::filesystem::is_regular_file(std::filesystem::symlink_status(directory / lock_name))) {
    return "";
  }
  std::string const text = read_regular(directory / lock_name, max_bytes).value_or("");
  return text.substr(0, text.find('\n'));
}

std::optional<bool> RunDirectory::taken_since(std::filesystem::path const& directory, std::string const& last_holder) {
  std::string const last = RunDirectory::last_holder(directory);
  if (last != last_holder) {
    return true;
  }
  // Who holds a lease has described itself there, not in the lock.
  bool const lease = std::filesystem::exists(directory / lease_name) ||
                     (last.empty() && std::filesystem::exists(directory / lock_name));
  return lease ? std::nullopt : std::optional(false);
}

bool RunDirectory::in_place() const {
  return lock_.in_place() && (!lease_ || lease_->held());
}

std::string RunDirectory::identity() const {
  constexpr std::size_t length = 16;
  std::string text;
  std::filesystem::path const path = directory_ / identity_name;
  if (std::filesystem::is_regular_file(std::filesystem::symlink_status(path))) {
    std::istringstream(read_regular(path, max_bytes).value_or("")) >> text;
  }
  if (text.size() != length || text.find_first_not_of("0123456789abcdef") != std::string::npos) {
    std::random_device random;
    text = fmt::format("{:08x}{:08x}", random(), random());
    replace_file(identity_name, text + "\n");
  }
  return text;
}

void RunDirectory::replace_file(std::string_view name, std::string_view text) const {
  std::filesystem::path const path = directory_ / name;
  std::error_code ignored;
  auto const type = std::filesystem::symlink_status(path, ignored).type();
  if (type != std::filesystem::file_type::regular && type != std::filesystem::file_type::directory) {
    std::filesystem::remove(path, ignored);  // a link or a FIFO: the directory is the run's own
  }
  heddle::replace_file(path, text);
}

}  // namespace heddle
