#pragma once

#include <cstdint>
#include <filesystem>
#include <heddle/core/base/error.hpp>
#include <string>
#include <vector>

namespace heddle {

/// A property of this machine or its environment.
struct Finding {
  /// `failed`: training cannot run so; `warning`: it can, but slower or with less safety.
  enum class Kind : std::uint8_t { good, failed, warning, unknown };

  Kind kind = Kind::good;
  std::string subject = {};  ///< "threads"
  std::string found = {};    ///< the state, as text
  std::string fix = {};      ///< what would fix a failed check or a warning; otherwise empty
};

/// The places to examine; tests have their own.
struct ExaminedPaths {
  std::filesystem::path root = "/";           ///< the directory that has proc and sys
  std::filesystem::path directory = ".";      ///< in which runs would be made
  std::filesystem::path memory = "/dev/shm";  ///< shared memory, for messages between ranks and copies of state
};

/// Examines this machine: starts neither MPI nor Kokkos' threads, writes only a file in `directory`, and removes it.
std::vector<Finding> examine(ExaminedPaths const& places);

/// A line for each finding, those that are not good with a fix, then "1 of 9 checks failed, 2 warnings.".
std::string describe(std::vector<Finding> const& findings);

/// ExitCode::failure where a check failed, else done; warnings do not count.
ExitCode exit_code_of(std::vector<Finding> const& findings);

}  // namespace heddle
