#pragma once

#include <filesystem>
#include <heddle/io/checkpoint/checkpoint.hpp>
#include <heddle/io/samples/training_data.hpp>
#include <map>
#include <optional>
#include <string>
#include <vector>

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
  /// All measures; none without validation sets.
  std::vector<Measure> measures() const;
  /// The digests of the validation sets, by name.
  std::map<std::string, std::string> digests() const;
  /// The digest of the data that the state's best value is of; "": unknown.
  std::string const& digest() const { return digest_; }

  /// Forgets what was measured on other data than this start has: where another measure decides than before, or the
  /// validation set is new, the best value becomes the best on this set whose checkpoint is there, or none. Returns a
  /// note about that, or "". Collective over the world.
  std::string restore(Checkpoint const& checkpoint, TrainingState& state, std::filesystem::path const& checkpoints);
  /// Validates, and counts the result in the state. Nothing if a rank gets the signal before it is done: then the
  /// validation is pending in the state. Collective over the world.
  std::optional<ValidationResult> validate(RunModel& model, TrainingState& state, StopSignal const& signal);
  /// Warnings about problems that a validation shows; on rank 0.
  std::vector<std::string> warnings(ValidationResult const& result, std::int64_t step);

 private:
  /// The set on which the best step is measured.
  ValidationSet const& deciding_set() const;
  std::string restart_best(Measure const& before, bool new_data, TrainingState& state,
                           std::filesystem::path const& checkpoints) const;

  TrainerSetup const& setup_;
  Config const& config_;
  std::vector<ValidationSet> const& sets_;
  std::string digest_;
  Measure best_measure_;
  bool warned_of_attention_ = false;  ///< a warning said that attention is uniform
};

}  // namespace heddle
