#include "run_view.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/paths.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/dataset.hpp>
#include <heddle/io/checkpoint/store.hpp>
#include <heddle/io/samples/mixture.hpp>
#include <heddle/run.hpp>

#include "inspection/run/parameters.hpp"
#include "run/checkpoints/checkpoint.hpp"
#include "run/checkpoints/provenance.hpp"
#include "run/directory/run_progress.hpp"
#include "run/directory/warning.hpp"
#include "run/metrics/measure.hpp"
#include "run/metrics/metrics.hpp"
#include "run/report/run_files.hpp"

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

}  // namespace

std::optional<Config> RunView::config() const {
  return checkpoint ? std::optional(stored_config(*checkpoint)) : std::nullopt;
}

RunView open_run(std::string const& path, std::string const& which, WantedKeys const& keys) {
  std::error_code problem;
  if (fs::is_regular_file(path, problem)) {
    throw DataError("{}: is a file; expected the directory of a run", path);
  }
  if (!fs::is_directory(path, problem)) {
    throw DataError(missing_file(path));
  }
  RunView run{path, run_directory_of(path), std::nullopt};
  if (has_checkpoints(path)) {
    auto [checkpoints, skipped] = open_checkpoints({.checkpoint = path, .which = which, .attach_base = false}, keys);
    std::ranges::for_each(skipped, report_on_stderr);
    run.checkpoint = std::move(checkpoints.front());
  } else if (run.directory.empty() && !datasets_at(path).empty()) {
    throw DataError("{}: has datasets, not a run; runs are compared by their directories", path);
  } else if (run.directory.empty()) {
    throw DataError(
        "{}: holds neither datasets nor checkpoints nor a {}; expected a directory that `heddle prepare` "
        "or `heddle train` wrote",
        path, metrics_name);
  }
  return run;
}

/// "2 whole passes and 4,000 samples of the next", or that of each corpus. Of a pass over windows, in which samples are
/// shuffled, it has the windows.
std::string describe_data_read(Checkpoint const& checkpoint) {
  std::string text;
  for (SampleCursor const& own : data_cursor(checkpoint.contents(), checkpoint.directory().string()).corpora) {
    std::int64_t const windows = own.position >> 32;
    std::string const in_window = counted(own.position & 0xFFFF'FFFF, "sample");
    text +=
        fmt::format("{}{}{}{} and {} of the next", text.empty() ? "" : "; ", own.corpus, own.corpus.empty() ? "" : ": ",
                    own.epoch == 1 ? "1 whole pass" : readable_count(own.epoch) + " whole passes",
                    windows > 0 ? fmt::format("{} with {}", counted(windows, "window"), in_window) : in_window);
  }
  return text;
}

std::vector<std::pair<std::string, std::string>> checkpoint_facts(Checkpoint const& checkpoint) {
  TrainingState const& state = checkpoint.state();
  std::int64_t elements = 0;
  for (TensorInfo const& tensor : checkpoint.tensors()) {
    elements += tensor.elements();
  }
  std::vector<std::pair<std::string, std::string>> facts{
      {"step", readable_count(state.step)},
      {"parameters", fmt::format("{} in {} tensors", readable_count(elements), checkpoint.tensors().size())},
      {"tokens seen", readable_count(state.tokens)},
      {"training time", readable_duration(state.seconds)},
      {"data read", describe_data_read(checkpoint)},
      {"seed", std::to_string(state.seed)}};
  if (state.best_step > 0) {
    Measure const best = measure_named(stored_config(checkpoint).train.best_metric.front());
    facts.emplace_back(
        "best " + best.name(),
        fmt::format("{} at step {}; {} since without a better one", best.number(state.best_value),
                    readable_count(state.best_step), counted(state.validations_without_improvement, "validation")));
  }
  if (state.validation_pending) {
    facts.emplace_back("validation", "a stop signal came first; the run validates when it resumes");
  }
  if (!checkpoint.contents().instruction_set.empty()) {
    facts.emplace_back("computed with", checkpoint.contents().instruction_set);
  }
  if (!checkpoint.contents().base.digest.empty()) {
    facts.emplace_back("base", checkpoint.contents().base.checkpoint);
  }
  facts.emplace_back("checkpoint", checkpoint.directory().string());
  for (std::string& line : describe_origin(checkpoint.contents())) {
    facts.emplace_back("origin", std::move(line));
  }
  return facts;
}

std::vector<std::pair<std::string, std::string>> run_facts(RunView const& run) {
  auto facts = checkpoint_facts(*run.checkpoint);
  auto const entries =
      list_checkpoints(run.directory.empty() ? fs::path(run.path) : run.directory, CheckpointStore::Check::sizes);
  if (entries.size() < 2) {
    return facts;
  }
  RunMetrics const metrics = run.directory.empty() ? RunMetrics() : read_metrics(run.directory / metrics_name);
  Measure const measure = measure_named(stored_config(*run.checkpoint).train.best_metric.front());
  auto const add = [&](char const* label, CheckpointEntry const& entry) {
    auto const value = metrics.at(measure.key(), entry.step);
    facts.emplace_back(label, fmt::format("step {}{}{}", readable_count(entry.step),
                                          value ? fmt::format(", {} {}", measure.name(), measure.number(*value)) : "",
                                          entry.step == run.checkpoint->state().step ? " (this one)" : ""));
  };
  if (auto const best = std::ranges::find(entries, true, &CheckpointEntry::best); best != entries.end()) {
    add("best checkpoint", *best);
  }
  add("last checkpoint", entries.back());
  return facts;
}

std::optional<boost::json::object> report_of(RunView const& run, std::vector<std::string>& notes) {
  auto report = read_run_file(run.directory / "report.json", "a run of this version writes it", notes);
  if (report) {
    add_slurm_energy(*report);
  }
  return report;
}

boost::json::object to_json(RunView const& run, std::vector<std::string>& notes) {
  std::string const name =
      run.directory.empty() ? fs::path(run.path).filename().string() : run.directory.filename().string();
  boost::json::object result{{"name", name}, {"path", run.path}, {"facts", boost::json::array()}};
  if (run.directory.empty()) {
    notes.push_back(fmt::format("{}: no curves, because it is in no run's directory", run.path));
  } else {
    result["metrics"] = to_json(read_metrics(run.directory / metrics_name));
    if (auto report = report_of(run, notes)) {
      result["report"] = std::move(*report);
    }
    auto const trace = read_run_file(run.directory / "trace.json", "`heddle train … --trace 3` writes it", notes);
    if (auto schedule = trace ? schedule_to_json(*trace) : std::nullopt) {
      result["schedule"] = std::move(*schedule);
    }
  }
  if (run.checkpoint) {
    for (auto const& [label, text] : run_facts(run)) {
      result["facts"].as_array().push_back(boost::json::array{label, text});
    }
    result["norms"] = parameter_norms(*run.checkpoint, *run.config());
    result["config"] = run.checkpoint->contents().config;
  } else {
    notes.push_back(fmt::format("{}: no checkpoint, so nothing of the model is shown", run.path));
  }
  return result;
}

}  // namespace heddle
