#include "reported_outcome.hpp"

#include <boost/json.hpp>
#include <exception>
#include <heddle/io/files/regular_file.hpp>
#include <string_view>
#include <system_error>

namespace heddle {

namespace fs = std::filesystem;

ReportTime report_time(fs::path const& run_directory) {
  std::error_code problem;
  bool const exists = fs::is_regular_file(fs::symlink_status(run_directory / report_name, problem));
  auto const time = exists ? fs::last_write_time(run_directory / report_name, problem) : fs::file_time_type();
  return exists && !problem ? ReportTime(time) : std::nullopt;
}

std::optional<ExitCode> reported_outcome(fs::path const& run_directory, ReportTime const& before) {
  // A report has about a kilobyte for each rank. The end of a larger one, which is all that is read, is not JSON.
  constexpr std::int64_t max_bytes = std::int64_t{256} << 20;
  try {
    if (auto const now = report_time(run_directory); !now || now == before) {
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
