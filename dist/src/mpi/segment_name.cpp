#include "segment_name.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/host_name.hpp>
#include <limits>
#include <thread>

namespace heddle {

SegmentName::SegmentName(std::string const& directory, std::string const& name, std::chrono::milliseconds wait)
    : file_(::open(fmt::format("{}/.heddle_jobs_{}", directory, ::geteuid()).c_str(),
                   O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)) {
  // One file for all names, so that none is left: each locks a byte of its own.
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(std::hash<std::string>()(name) % std::numeric_limits<off_t>::max());
  lock.l_len = 1;
  auto const end = std::chrono::steady_clock::now() + wait;
  do {
    if (file_ < 0 || ::fcntl(file_, F_OFD_SETLK, &lock) == 0 || (errno != EAGAIN && errno != EACCES)) {
      return;
    }
    std::this_thread::sleep_for(std::min(wait, std::chrono::milliseconds(50)));
  } while (std::chrono::steady_clock::now() < end);
  ::close(file_);
  throw ConfigError(fmt::format(
      "another job on this host has the same name for its memory in {0}, {1}: each has its own PID namespace (a "
      "container), and MPI names segments by process numbers. Give each job a {0} of its own (docker run "
      "--ipc=private), or a directory of its own by the variable OMPI_MCA_btl_vader_backing_directory, and its own "
      "TMPDIR",
      directory, name));
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

std::optional<std::string> SegmentName::own() {
  char const* const job = std::getenv("PMIX_NAMESPACE");
  char const* const rank = std::getenv("PMIX_RANK");
  if (job == nullptr || rank == nullptr) {
    return std::nullopt;
  }
  return fmt::format("{}.{}.{}", host_name(), job, rank);
}

}  // namespace heddle
