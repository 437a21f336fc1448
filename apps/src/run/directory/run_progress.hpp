#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <filesystem>
#include <heddle/core/base/error.hpp>
#include <optional>
#include <string>

namespace heddle {

/// The file with a run's metrics, in its directory.
inline constexpr char const* metrics_name = "metrics.jsonl";
/// The key of a line's sample translations, [[source, reference, translation], …].
inline constexpr char const* valid_samples_key = "valid_samples";
/// The file with a run's report, in its directory.
inline constexpr char const* report_name = "report.json";

/// The object of a line of metrics.jsonl; nothing where the line is not complete. Values that are not finite are null,
/// also those that earlier versions wrote as Infinity and NaN.
std::optional<boost::json::object> parse_metrics_line(std::string line);

/// The line's step; -1 where it has none.
std::int64_t step_of(std::optional<boost::json::object> const& line);

/// The newest step that metrics or checkpoints of the run show, -1 if there are none. Files and directories that cannot
/// be read show nothing: errors of the file system are not thrown.
std::int64_t newest_step(std::filesystem::path const& run_directory);

/// The directory of the run in which a path lies: itself, or up to two levels above it; empty: none has metrics.
std::filesystem::path run_directory_of(std::filesystem::path const& path);

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
