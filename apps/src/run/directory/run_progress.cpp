#include "run_progress.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <boost/json.hpp>
#include <exception>
#include <heddle/core/base/error.hpp>
#include <heddle/io/checkpoint/store.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <sstream>
#include <string_view>
#include <system_error>

namespace heddle {

namespace {

/// Replaces the values that are not JSON; keys and the names of groups have no such text.
std::string with_null(std::string line) {
  for (std::string_view const word : {":Infinity", ":-Infinity", ":NaN", ":-NaN"}) {
    for (std::size_t at = line.find(word); at != std::string::npos; at = line.find(word, at)) {
      line.replace(at, word.size(), ":null");
    }
  }
  return line;
}

/// -1 if there are no metrics, or they are not a regular file.
std::int64_t newest_step_of_metrics(std::filesystem::path const& path) {
  // The last lines suffice, which have at most a few kilobytes: a later step has a later line. The number of a
  // validation command may come after lines of later steps.
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

std::filesystem::path run_directory_of(std::filesystem::path const& path) {
  std::error_code problem;
  std::filesystem::path at = std::filesystem::weakly_canonical(path, problem);
  for (int level = 0; level < 3; ++level, at = at.parent_path()) {
    if (std::filesystem::exists(at / metrics_name, problem)) {
      return at;
    }
  }
  return {};
}

std::optional<boost::json::object> parse_metrics_line(std::string line) {
  boost::json::error_code problem;
  boost::json::value value = boost::json::parse(line, problem);
  if (problem) {
    value = boost::json::parse(with_null(std::move(line)), problem);
  }
  return problem || !value.is_object() ? std::nullopt : std::optional(std::move(value.get_object()));
}

std::int64_t step_of(std::optional<boost::json::object> const& line) {
  auto const* const step = line ? line->if_contains("step") : nullptr;
  auto const* const number = step != nullptr ? step->if_int64() : nullptr;
  return number != nullptr ? *number : -1;
}

std::int64_t newest_step(std::filesystem::path const& run_directory) {
  return std::max(newest_step_of_metrics(run_directory / metrics_name),
                  newest_step_of_checkpoints(run_directory / "checkpoints"));
}

std::optional<ReportStamp> report_stamp(std::filesystem::path const& run_directory) {
  std::filesystem::path const report = run_directory / report_name;
  struct stat file {};
  std::error_code problem;
  if (::lstat(report.c_str(), &file) != 0 || !S_ISREG(file.st_mode)) {
    return std::nullopt;
  }
  auto const written = std::filesystem::last_write_time(report, problem);
  return problem ? std::nullopt : std::optional(ReportStamp{file.st_dev, file.st_ino, file.st_size, written});
}

std::optional<ExitCode> reported_outcome(std::filesystem::path const& run_directory,
                                         std::optional<ReportStamp> const& before) {
  // A report has about a kilobyte for each rank. The end of a larger one, which is all that is read, is not JSON.
  constexpr std::int64_t max_bytes = std::int64_t{256} << 20;
  try {
    if (auto const now = report_stamp(run_directory); !now || now == before) {
      return std::nullopt;
    }
    auto const report = boost::json::parse(read_regular(run_directory / report_name, max_bytes).value_or(""));
    std::string_view const state = report.at("state").as_string();
    bool const done = state == "done" || state == "stopped early";
    return done                               ? std::optional(ExitCode::done)
           : state.starts_with("stopped by ") ? std::optional(ExitCode::requeue)
                                              : std::nullopt;
  } catch (std::exception const&) {
    return std::nullopt;  // no report of this form, or no memory: nothing is known
  }
}

}  // namespace heddle
