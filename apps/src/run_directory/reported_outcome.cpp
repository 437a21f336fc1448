#include "reported_outcome.hpp"

#include <sys/stat.h>

#include <boost/json.hpp>
#include <exception>
#include <heddle/io/files/regular_file.hpp>
#include <string_view>
#include <system_error>

namespace heddle {

namespace fs = std::filesystem;

std::optional<ReportStamp> report_stamp(fs::path const& run_directory) {
  fs::path const report = run_directory / report_name;
  struct stat file {};
  std::error_code problem;
  if (::lstat(report.c_str(), &file) != 0 || !S_ISREG(file.st_mode)) {
    return std::nullopt;
  }
  auto const written = fs::last_write_time(report, problem);
  return problem ? std::nullopt : std::optional(ReportStamp{file.st_dev, file.st_ino, file.st_size, written});
}

std::optional<ExitCode> reported_outcome(fs::path const& run_directory, std::optional<ReportStamp> const& before) {
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
