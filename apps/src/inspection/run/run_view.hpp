#pragma once

#include <boost/json/object.hpp>
#include <filesystem>
#include <heddle/core/config/config.hpp>
#include <heddle/io/checkpoint/checkpoint.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// A run as far as it is there: its directory, with metrics.jsonl and perhaps report.json and trace.json, and one of
/// its checkpoints.
struct RunView {
  std::string path;
  std::filesystem::path directory;  ///< empty: a checkpoint that is in no run's directory
  std::optional<Checkpoint> checkpoint;

  /// The checkpoint's.
  std::optional<Config> config() const;
};

/// Opens a run's directory, its checkpoints directory, or one checkpoint's. Throws DataError where there is neither a
/// checkpoint nor a metrics.jsonl, or where no checkpoint verifies, as far as these keys need it.
RunView open_run(std::string const& path, std::string const& which, WantedKeys const& keys = {value_key, average_key});

/// The state of a checkpoint as pairs of strings, label and value: {"step", "1,000"}, …
std::vector<std::pair<std::string, std::string>> checkpoint_facts(Checkpoint const& checkpoint);

/// checkpoint_facts of the run's checkpoint, and the best and the last one of a run that has several, with the metric
/// that decides: {"last checkpoint", "step 1,000, validation loss 2.7539 (this one)"}.
std::vector<std::pair<std::string, std::string>> run_facts(RunView const& run);

/// The report.json of the run, completed by Slurm's accounting; nothing, and a note, where it is absent.
std::optional<boost::json::object> report_of(RunView const& run, std::vector<std::string>& notes);

/// {"name", "path", "facts": [[label, text]], "metrics", "report", "schedule", "norms", "config"}; `notes` gets a line
/// for each part that is absent.
boost::json::object to_json(RunView const& run, std::vector<std::string>& notes);

}  // namespace heddle
