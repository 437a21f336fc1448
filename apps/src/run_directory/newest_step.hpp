#pragma once

#include <cstdint>
#include <filesystem>

namespace heddle {

/// The file with a run's metrics, in its directory.
inline constexpr char const* metrics_name = "metrics.jsonl";

/// The newest step that metrics or checkpoints of the run show, -1 if there are none. Of files and directories that
/// cannot be read nothing is shown: errors of the file system are not thrown.
std::int64_t newest_step(std::filesystem::path const& run_directory);

}  // namespace heddle
