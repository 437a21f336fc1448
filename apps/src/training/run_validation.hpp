#pragma once

#include <filesystem>
#include <functional>
#include <heddle/io/checkpoint/checkpoint.hpp>
#include <heddle/io/samples/training_data.hpp>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "measures/validation_commands.hpp"
#include "run/metrics/measure.hpp"
#include "run/metrics/training_log.hpp"
#include "training/run_model.hpp"
#include "training/stop_signal.hpp"
#include "training/trainer_setup.hpp"

namespace heddle {

/// When a run is validated, which of its steps is the best one, and when it ends. The figures are in the run's state.
class RunValidation {
 public:
  /// The sets must outlive it. Throws ConfigError as best_measure does.
  RunValidation(TrainerSetup const& setup, std::vector<ValidationSet> const& sets);

  bool has_sets() const { return !sets_.empty(); }
  /// `exhausted`: the data have ended with this step.
  bool is_due(std::int64_t step, bool exhausted) const;
  bool stopped_early(TrainingState const& state) const;
  bool finished(TrainingState const& state) const;

  /// The measure by which the best step is chosen.
  Measure const& best_measure() const { return best_measure_; }
  /// The measures of train.best_metric that have had as many validations without a better value as end a run.
  std::vector<Improvement> without_better(TrainingState const& state) const;
  /// Counts validations without a better value from now on.
  void restart_stopping(TrainingState& state);
  /// All measures; none without validation sets.
  std::vector<Measure> measures() const;
  /// The digests of the validation sets, by Measure::data.
  std::map<std::string, std::string> digests() const;
  /// The digest of the data that the state's best value is of; "": unknown.
  std::string const& digest() const { return digest_; }
  /// The other measures of train.best_metric up to now: CheckpointContents::further_best.
  std::string further_best() const;

  /// Forgets what was measured on other data than this start has: where another measure decides than before, or the
  /// validation set is new, the best value becomes the best on this set whose checkpoint is there, or none. Returns a
  /// note about that, or "". Collective over the world.
  std::string restore(Checkpoint const& checkpoint, TrainingState& state, std::filesystem::path const& checkpoints);
  /// Validates, and counts the result in the state. Nothing if a rank gets the signal before it is done: then the
  /// validation is pending in the state. Collective over the world.
  std::optional<ValidationResult> validate(RunModel& model, TrainingState& state, StopSignal const& signal);
  // Programs that measure a validation beside the steps that follow it, on rank 0:
  /// Their results since the last call.
  std::vector<CommandResult> finished_commands() { return beside_.finished(); }
  std::size_t commands_left() const { return beside_.left(); }
  void cancel_commands() { beside_.cancel(); }
  /// Warnings about problems that a validation shows; on rank 0.
  std::vector<std::string> warnings(ValidationResult const& result, std::int64_t step);

 private:
  /// The digest of a measure's data.
  std::string digest_of(Measure const& measure) const;
  /// The measures of train.best_metric after the first, as they were when the checkpoint was written, where they are of
  /// the same data.
  void restore_further(std::string const& text);
  /// Adds what programs measure, as far as a validation waits for them, and the mean; starts the others. Collective
  /// over the world. `check` may throw on all ranks.
  void measure_by_commands(ValidationResult& result, std::int64_t step, std::function<void()> const& check);
  /// Measures the parameters' values after this step and, with optimizer.average, their averages, after which the
  /// values are back. `check` may throw on all ranks. Collective over the world.
  ValidationResult measure(RunModel& model, std::int64_t step, std::function<void()> const& check) const;
  /// Whether averages with these values are to be used, by the deciding measure, then by the loss.
  bool are_better(ValidationResult const& of_averages, ValidationResult const& of_values) const;
  /// Counts a result in the state.
  void count(ValidationResult const& result, TrainingState& state);
  std::string restart_best(Measure const& before, bool new_data, TrainingState& state,
                           std::filesystem::path const& checkpoints);

  TrainerSetup const& setup_;
  Config const& config_;
  std::vector<ValidationSet> const& sets_;
  std::string digest_;
  Measure best_measure_;
  std::vector<Improvement> further_;  ///< the others of train.best_metric
  ValidationCommands waited_for_, beside_;
  bool warned_of_attention_ = false;  ///< a warning said that attention is uniform
};

}  // namespace heddle
