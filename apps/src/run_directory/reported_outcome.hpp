#pragma once

#include <cstdint>
#include <filesystem>
#include <heddle/core/base/error.hpp>
#include <optional>

namespace heddle {

/// The file with a run's report, in its directory.
inline constexpr char const* report_name = "report.json";

/// Tells two report.json apart: each is a new file under that name, and times of files may be coarse.
struct ReportStamp {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::int64_t bytes = 0;
  std::filesystem::file_time_type written{};

  bool operator==(ReportStamp const&) const = default;
};

/// The stamp of a run's report.json. Nothing if there is none, or it cannot be accessed.
std::optional<ReportStamp> report_stamp(std::filesystem::path const& run_directory);

/// The outcome of training as the run's report states it: ExitCode::done, also if it stopped early, or
/// ExitCode::requeue after a signal. Nothing while it trains, if the report is still the one of `before`, or if it
/// cannot be read. Does not throw.
std::optional<ExitCode> reported_outcome(std::filesystem::path const& run_directory,
                                         std::optional<ReportStamp> const& before);

}  // namespace heddle
