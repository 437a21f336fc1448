#include "newest_step.hpp"

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/io/checkpoint/store.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <sstream>
#include <system_error>

#include "metrics_line.hpp"

namespace heddle {

namespace {

/// -1 if there are no metrics, or they are no regular file.
std::int64_t newest_step_of_metrics(std::filesystem::path const& path) {
  // Lines are in the order of their steps, and the last ones suffice; they have at most a few kilobytes.
  constexpr std::int64_t enough = 1 << 16;
  std::int64_t newest = -1;
  try {
    std::istringstream metrics(read_regular(path, enough).value_or(""));
    for (std::string line; std::getline(metrics, line);) {
      newest = std::max(newest, step_of(parse_metrics_line(line)));
    }
  } catch (DataError const&) {
    // Something that training refuses: it says so.
  }
  return newest;
}

/// -1 also if the directory cannot be read; what was read of it before an error counts.
std::int64_t newest_step_of_checkpoints(std::filesystem::path const& directory) {
  std::int64_t newest = -1;
  std::error_code problem;
  std::filesystem::directory_iterator entry(directory, problem);
  while (!problem && entry != std::filesystem::directory_iterator()) {
    newest = std::max(newest, checkpoint_step(entry->path().filename().string()).value_or(-1));
    entry.increment(problem);
  }
  return newest;
}

}  // namespace

std::int64_t newest_step(std::filesystem::path const& run_directory) {
  return std::max(newest_step_of_metrics(run_directory / metrics_name),
                  newest_step_of_checkpoints(run_directory / "checkpoints"));
}

}  // namespace heddle
