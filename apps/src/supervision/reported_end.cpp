#include "reported_end.hpp"

#include <sys/stat.h>

#include <boost/json.hpp>
#include <exception>
#include <heddle/io/files/regular_file.hpp>

namespace heddle {

namespace {

constexpr char const* report_name = "report.json";
/// A report has about a kilobyte for each rank.
constexpr std::int64_t max_bytes = std::int64_t{256} << 20;

std::optional<ExitCode> end_of(boost::json::value const& report) {
  auto const* const object = report.if_object();
  auto const* const state = object != nullptr ? object->if_contains("state") : nullptr;
  auto const* const text = state != nullptr ? state->if_string() : nullptr;
  if (text == nullptr) {
    return std::nullopt;
  }
  if (*text == "done" || *text == "stopped early") {
    return ExitCode::done;
  }
  return text->starts_with("stopped by ") ? std::optional(ExitCode::requeue) : std::nullopt;
}

}  // namespace

ReportStamp report_stamp(std::filesystem::path const& run_directory) {
  struct stat file {};
  if (::lstat((run_directory / report_name).c_str(), &file) != 0 || !S_ISREG(file.st_mode)) {
    return {};
  }
  return {file.st_dev, file.st_ino, file.st_size, file.st_mtim.tv_sec, file.st_mtim.tv_nsec};
}

std::optional<ExitCode> reported_end(std::filesystem::path const& run_directory, ReportStamp const& before) {
  try {
    ReportStamp const now = report_stamp(run_directory);
    if (now == before || now.bytes == 0 || now.bytes > max_bytes) {
      return std::nullopt;
    }
    boost::json::error_code problem;
    boost::json::value const report =
        boost::json::parse(read_regular(run_directory / report_name, max_bytes).value_or(""), problem);
    return problem ? std::nullopt : end_of(report);
  } catch (std::exception const&) {
    return std::nullopt;  // no memory, for example: nothing is known
  }
}

}  // namespace heddle
