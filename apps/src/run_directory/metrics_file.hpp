#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace heddle {

/// The file with a run's metrics, in its directory.
inline constexpr char const* metrics_name = "metrics.jsonl";

/// The object of a line of metrics.jsonl; nothing where the line is not whole. Numbers that are not finite are null,
/// also those that earlier versions wrote as Infinity and NaN.
std::optional<boost::json::object> parse_metrics_line(std::string line);

/// The line's step; -1 where it has none.
std::int64_t step_of(std::optional<boost::json::object> const& line);

/// The newest step that metrics or checkpoints of the run show, -1 if there are none. Of files and directories that
/// cannot be read nothing is shown: errors of the file system are not thrown.
std::int64_t newest_step(std::filesystem::path const& run_directory);

}  // namespace heddle
