#pragma once

#include <cstdint>
#include <heddle/dist/training/training_engine.hpp>
#include <optional>

#include "run/directory/run_directory.hpp"
#include "run/directory/run_log.hpp"
#include "run/metrics/training_log.hpp"
#include "run/report/run_report.hpp"
#include "run/report/run_text.hpp"
#include "training/run_input.hpp"
#include "training/run_model.hpp"
#include "training/run_validation.hpp"
#include "training/trainer_setup.hpp"

namespace heddle {

/// Everything that a run prints, and writes into its directory beside checkpoints: log, metrics, report and trace. The
/// directory and its files are rank 0's; functions without a condition do nothing on other ranks.
class RunOutput {
 public:
  /// Prints the changed keys and the mesh, and plans the memory. Collective over the world.
  RunOutput(TrainerSetup const& setup, RunInput const& input);

  RunLog& log() { return log_; }
  ModelDescription const& model() const { return report_.model(); }
  /// The memory that this rank will need.
  MemoryPlan const& plan() const { return report_.plan(); }
  /// Null on other ranks than 0.
  RunDirectory const* directory() const { return directory_ ? &*directory_ : nullptr; }

  /// Makes and locks the run's directory, and writes the log there. Throws ConfigError as RunDirectory::open does.
  void open_directory();
  /// Makes a directory that was removed or replaced while training again.
  void restore_directory(std::int64_t step);
  /// Prints what starts, and continues the run's metrics.
  void start(RunInput const& input, RunModel const& model, RunValidation const& validation, TrainingState const& state);
  /// Writes the start of the report, and starts the trace; on every rank.
  void start_steps(RunModel const& model, RunValidation const& validation, std::int64_t step);

  /// Seconds of training, over all restarts; 0 on other ranks than 0.
  double seconds() const { return training_log_ ? training_log_->seconds() : 0; }
  /// The best values so far; none on other ranks than 0.
  std::vector<BestValue> best_values() const;
  /// CheckpointContents::begun_line; "" on other ranks than 0.
  std::string begun_line() const { return training_log_ ? training_log_->begun_line() : ""; }
  /// Continues a line that an earlier start has begun; before `start`.
  void continue_line(std::string begun) { begun_line_ = std::move(begun); }
  /// Time between the two calls is not training time.
  void pause();
  void resume();
  /// Counts a step, and writes its metrics with those of the validation after it; on every rank.
  void step(StepReport const& report, std::optional<ValidationResult> const& validation);
  /// Writes the metrics of a validation after a step of an earlier start.
  void validation(std::int64_t step, ValidationResult const& validation);
  /// TrainingLog::count_repeated.
  void count_repeated(bool skipped);

  /// Steps are recorded for the trace between two calls; a validation between two steps is not. On every rank.
  void record(bool on);
  /// Writes the trace if its last step has been made, or no more steps are; collective over the world.
  void finish_trace(bool last_step, std::int64_t step);

  /// Reports a run that ends with steps of this start, or without, and prints its last lines. `typical_length` is the
  /// length of a sample. Collective over the world.
  void end(Ending const& ending, RunModel& model, double typical_length);
  /// The same for a run that was finished before this start.
  void end_finished(Ending const& ending, RunModel const& model);

 private:
  /// Prints what is known before the dry run of steps, which takes a while.
  RunReport::Setup announce(RunInput const& input);
  void lock_directory();
  void write_report() const;
  /// Writes the report of a start that made no step.
  void conclude(Ending const& ending, RunModel const& model);

  TrainerSetup const& setup_;
  Config const& config_;
  RunLog log_;
  RunReport report_;
  std::optional<RunDirectory> directory_;
  std::string begun_line_;
  std::optional<TrainingLog> training_log_;
  bool tracing_ = false;  ///< until the trace is written
};

}  // namespace heddle
