#pragma once

#include <boost/json.hpp>
#include <filesystem>
#include <heddle/core/config/config.hpp>
#include <heddle/io/checkpoint/checkpoint.hpp>
#include <optional>
#include <string>
#include <vector>

namespace heddle {

/// A run as far as it is there: its directory, with metrics.jsonl and perhaps report.json and trace.json, and one of
/// its checkpoints.
struct RunView {
  std::string path;
  std::filesystem::path directory;  ///< empty: a checkpoint that is in no run's directory
  std::optional<Checkpoint> checkpoint;
  std::optional<Config> config;
};

/// The run's directory that a path lies in: itself, or up to two levels above it; empty: none.
std::filesystem::path run_directory_of(std::filesystem::path const& path);

/// Opens what `path` names: a run's directory, its checkpoints directory, or one checkpoint's. Throws DataError where
/// there is neither a checkpoint nor a metrics.jsonl, or where no checkpoint verifies.
RunView open_run(std::string const& path, std::string const& which);

/// {"name", "path", "facts": [[label, text]], "metrics", "norms", "config", "mesh"}; `notes` gets a line for each part
/// that is absent.
boost::json::object to_json(RunView const& run, std::vector<std::string>& notes);

}  // namespace heddle
