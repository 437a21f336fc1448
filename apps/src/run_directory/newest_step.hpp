#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace heddle {

/// The file with a run's metrics, in its directory.
inline constexpr char const* metrics_name = "metrics.jsonl";

/// The step of a line of metrics.jsonl, -1 if the line is not whole or not Heddle's.
std::int64_t step_of_line(std::string const& line);

/// The newest step that metrics or checkpoints of the run show, -1 if there are none. Of files and directories that
/// cannot be read nothing is shown: errors of the file system are not thrown.
std::int64_t newest_step(std::filesystem::path const& run_directory);

}  // namespace heddle
