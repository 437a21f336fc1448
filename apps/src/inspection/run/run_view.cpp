#include "run_view.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/paths.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/io/checkpoint/store.hpp>
#include <heddle/io/dataset/prepare.hpp>
#include <iostream>

#include "inspection/run/energy.hpp"
#include "inspection/run/metrics.hpp"
#include "inspection/run/parameters.hpp"
#include "inspection/run/run_files.hpp"
#include "run_directory/metrics_file.hpp"
#include "training/checkpoint.hpp"
#include "translation/trained_model.hpp"

namespace heddle {
namespace {

namespace fs = std::filesystem;

bool has_checkpoints(fs::path const& path) {
  try {
    return !list_checkpoints(path, CheckpointStore::Check::sizes).empty();
  } catch (DataError const&) {
    return false;
  }
}

bool has_datasets(fs::path const& path) {
  auto const files = fs::directory_iterator(path);
  return std::any_of(fs::begin(files), fs::end(files), [](fs::directory_entry const& entry) {
    std::string const name = entry.path().filename().string();
    return is_training_file(name) || name == "valid.h5";
  });
}

boost::json::array facts_of(RunView const& run) {
  boost::json::array facts;
  auto const add = [&](char const* label, std::string const& text) {
    facts.push_back(boost::json::array{label, text});
  };
  if (run.checkpoint) {
    TrainingState const& state = run.checkpoint->state();
    std::int64_t elements = 0;
    for (TensorInfo const& tensor : run.checkpoint->tensors()) {
      elements += tensor.elements();
    }
    add("step", readable_count(state.step));
    add("parameters", readable_count(elements));
    add("tokens seen", readable_count(state.tokens));
    add("training time", readable_duration(state.seconds));
    if (state.best_step > 0) {
      add("best validation loss",
          fmt::format("{:.4f} at step {}", state.best_valid_loss, readable_count(state.best_step)));
    }
    add("checkpoint", run.checkpoint->directory().string());
  }
  return facts;
}

void add_run_files(boost::json::object& result, fs::path const& directory, std::vector<std::string>& notes) {
  if (auto report = read_run_file(directory / "report.json", "a run of this version writes it", notes)) {
    add_slurm_energy(*report);
    result["report"] = std::move(*report);
  }
  auto const trace = read_run_file(directory / "trace.json", "`heddle train … --trace 3` writes it", notes);
  if (auto schedule = trace ? schedule_to_json(*trace) : std::nullopt) {
    result["schedule"] = std::move(*schedule);
  }
}

}  // namespace

fs::path run_directory_of(fs::path const& path) {
  std::error_code problem;
  fs::path at = fs::weakly_canonical(path, problem);
  for (int level = 0; level < 3; ++level, at = at.parent_path()) {
    if (fs::exists(at / metrics_name, problem)) {
      return at;
    }
  }
  return {};
}

RunView open_run(std::string const& path, std::string const& which) {
  std::error_code problem;
  if (fs::is_regular_file(path, problem)) {
    throw DataError(fmt::format("{}: is a file; expected the directory of a run", path));
  }
  if (!fs::is_directory(path, problem)) {
    throw DataError(fmt::format("{}: there is no such directory{}", path, relative_to(path)));
  }
  RunView run{path, run_directory_of(path), std::nullopt, std::nullopt};
  if (has_checkpoints(path)) {
    TrainedModelOptions options;
    options.checkpoint = path;
    options.which = which;
    auto const report = [](std::string const& message) { std::cerr << "heddle: " << message << '\n'; };
    run.checkpoint = std::move(open_checkpoints(options, report).front());
    run.config = stored_config(*run.checkpoint);
  } else if (run.directory.empty() && has_datasets(path)) {
    throw DataError(fmt::format("{}: has datasets, not a run; --compare takes the directory of a run", path));
  } else if (run.directory.empty()) {
    throw DataError(
        fmt::format("{}: holds neither datasets nor checkpoints nor a {}; expected a directory that `heddle prepare` "
                    "or `heddle train` wrote",
                    path, metrics_name));
  }
  return run;
}

boost::json::object to_json(RunView const& run, std::vector<std::string>& notes) {
  std::string const name =
      run.directory.empty() ? fs::path(run.path).filename().string() : run.directory.filename().string();
  boost::json::object result{{"name", name}, {"path", run.path}, {"facts", facts_of(run)}};
  if (run.directory.empty()) {
    notes.push_back(fmt::format("{}: no curves, because it is in no run's directory", run.path));
  } else {
    result["metrics"] = to_json(read_metrics(run.directory / metrics_name));
    add_run_files(result, run.directory, notes);
  }
  if (run.checkpoint) {
    result["norms"] = to_json(parameter_norms(*run.checkpoint, *run.config));
    result["config"] = run.checkpoint->config();
  } else {
    notes.push_back(fmt::format("{}: no checkpoint, so nothing of the model is shown", run.path));
  }
  return result;
}

}  // namespace heddle
