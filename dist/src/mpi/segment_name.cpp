#include "segment_name.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <functional>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/host_name.hpp>
#include <limits>
#include <string_view>
#include <thread>

namespace heddle {
namespace {

/// The byte that stands for a name: one file has all locks, so that no file is left for a job.
struct flock byte_of(std::string const& name) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(std::hash<std::string>()(name) % std::numeric_limits<off_t>::max());
  lock.l_len = 1;
  return lock;
}

/// False if another process has the name.
bool take(int file, std::string const& name) {
  struct flock lock = byte_of(name);
  return ::fcntl(file, F_OFD_SETLK, &lock) == 0 || (errno != EAGAIN && errno != EACCES);
}

bool is_taken(int file, std::string const& name) {
  struct flock lock = byte_of(name);
  return ::fcntl(file, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

bool becomes_true(SegmentName::Wait wait, std::function<bool()> const& condition) {
  auto const end = std::chrono::steady_clock::now() + wait;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= end) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

ino_t pid_namespace() {
  struct stat found {};
  return ::stat("/proc/self/ns/pid", &found) == 0 ? found.st_ino : 0;
}

}  // namespace

SegmentName::SegmentName(std::string const& directory, Rank const& rank, Wait wait)
    : file_(::open(fmt::format("{}/.heddle_jobs_{}", directory, ::geteuid()).c_str(),
                   O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)) {
  if (file_ < 0) {
    return;
  }
  // Where two jobs start at the same moment, the ranks of one wait until its first rank has ended it.
  std::string const here = fmt::format("{}.{}", rank.job, pid_namespace());
  if (!rank.first_on_host) {
    becomes_true(5 * wait, [&] { return is_taken(file_, here); });
    return;
  }
  if (becomes_true(wait, [&] { return take(file_, rank.job); })) {
    take(file_, here);
    return;
  }
  ::close(file_);
  throw ConfigError(
      "another job on this host has the same name for its memory in {0}, {1}: each has its own PID namespace (a "
      "container), and MPI names segments by process numbers. Give each job a {0} of its own (docker run "
      "--ipc=private), or a directory of its own by the variable OMPI_MCA_btl_vader_backing_directory, and its own "
      "TMPDIR",
      directory, rank.job);
}

SegmentName::~SegmentName() {
  if (file_ >= 0) {
    ::close(file_);
  }
}

std::string SegmentName::directory() {
  char const* const chosen = std::getenv("OMPI_MCA_btl_vader_backing_directory");
  return chosen == nullptr ? "/dev/shm" : chosen;
}

std::optional<SegmentName::Rank> SegmentName::own() {
  char const* const job = std::getenv("PMIX_NAMESPACE");
  char const* const on_host = std::getenv("OMPI_COMM_WORLD_LOCAL_RANK");
  if (job == nullptr || on_host == nullptr) {
    return std::nullopt;
  }
  return Rank{fmt::format("{}.{}", host_name(), job), std::string_view(on_host) == "0"};
}

}  // namespace heddle
