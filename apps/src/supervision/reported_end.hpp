#pragma once

#include <cstdint>
#include <filesystem>
#include <heddle/core/base/error.hpp>
#include <optional>

namespace heddle {

/// Tells two report.json apart, as each is a new file under that name. Zeros if there is none.
struct ReportStamp {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::int64_t bytes = 0;
  std::int64_t seconds = 0;
  std::int64_t nanoseconds = 0;

  bool operator==(ReportStamp const&) const = default;
};

/// Of the report in a run's directory; that of no report also where it cannot be looked at.
ReportStamp report_stamp(std::filesystem::path const& run_directory);

/// How training ended as the run's report says: ExitCode::done, also if it stopped early, or ExitCode::requeue after a
/// signal. Nothing while it trains, if the report is still the one of `before`, or if it cannot be read. Does not
/// throw.
std::optional<ExitCode> reported_end(std::filesystem::path const& run_directory, ReportStamp const& before);

}  // namespace heddle
