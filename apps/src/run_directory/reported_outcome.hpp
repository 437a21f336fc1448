#pragma once

#include <filesystem>
#include <heddle/core/base/error.hpp>
#include <optional>

namespace heddle {

/// The file with a run's report, in its directory.
inline constexpr char const* report_name = "report.json";

/// The time at which report.json was written, which tells two reports apart, because each is a new file under that
/// name. Nothing if there is none, or it cannot be accessed.
using ReportTime = std::optional<std::filesystem::file_time_type>;
ReportTime report_time(std::filesystem::path const& run_directory);

/// The outcome of training as the run's report states it: ExitCode::done, also if it stopped early, or
/// ExitCode::requeue after a signal. Nothing while it trains, if the report is still the one of `before`, or if it
/// cannot be read. Does not throw.
std::optional<ExitCode> reported_outcome(std::filesystem::path const& run_directory, ReportTime const& before);

}  // namespace heddle
