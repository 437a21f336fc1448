#pragma once

#include <chrono>
#include <heddle/core/base/error.hpp>
#include <optional>
#include <string>

#include "training/checkpoint_keeper.hpp"
#include "training/loss_watch.hpp"
#include "training/run_input.hpp"
#include "training/run_model.hpp"
#include "training/run_output.hpp"
#include "training/run_validation.hpp"
#include "training/stop_signal.hpp"
#include "training/trainer_setup.hpp"

namespace heddle {

/// One training run: the order of steps, validations and checkpoints. Made and run by all ranks together.
class Trainer {
 public:
  /// Opens the data, builds the model, locks the run's directory, and continues from the newest verified checkpoint
  /// there, or starts. Throws ConfigError if another process trains there or if that checkpoint belongs to another
  /// model, data order or vocabulary, DataError if none verifies. Collective over the world.
  explicit Trainer(TrainerSetup const& setup);
  Trainer(Trainer const&) = delete;
  Trainer& operator=(Trainer const&) = delete;

  /// Trains to the configured end, or to early stopping (ExitCode::done), or until `signal` (ExitCode::requeue, after
  /// a checkpoint). A step whose loss or gradient is not finite is run again, and its batch is skipped if it repeats;
  /// throws Error with loss_not_finite after FiniteSteps::max_skipped in a row. Collective over the world.
  ExitCode run(StopSignal const& signal);

 private:
  /// Finds the parameters that a new run takes from another one; nothing if it takes none, or has a checkpoint.
  std::optional<Initialization> find_initialization();
  /// Throws ConfigError, on rank 0, where the disk has no room for a checkpoint; warns where it will be too small.
  /// Returns the bytes of CheckpointContents::origin, on rank 0.
  std::int64_t require_room(std::optional<Initialization> const& initialization);
  /// The checkpoint from which the run continues, checked, with everything that this rank reads on its host.
  std::optional<Checkpoint> find_checkpoint();
  void restore(Checkpoint const& checkpoint);
  void start(std::optional<Initialization> const& initialization);

  StepReport train_step();
  /// Reports a step that was not finite; throws Error with loss_not_finite if there were too many in a row.
  void report_not_finite(FiniteSteps::Outcome const& outcome);
  /// Does the work after a step: validation, checkpoints.
  void after_step(StepReport const& report, StopSignal const& signal);
  std::optional<ValidationResult> validate(StopSignal const& signal);
  /// Warns of problems that a validation shows, and says when it ends the run.
  void report_validation(ValidationResult const& validation);
  /// Reports a validation, and ends a stage in which it has stalled.
  void take_validation(ValidationResult const& validation);
  /// Reports what programs have measured beside the steps; on rank 0.
  void report_commands();
  /// Warns of faults of files from which this rank has recovered.
  void report_file_troubles();
  /// Waits for the programs that still measure, until a signal comes, and reports.
  void await_commands(StopSignal const& signal);
  /// Ends them, and reports.
  void cancel_commands();
  /// Reports a stage of the data that begins; early stopping counts its validations from now on.
  void report_stage();
  /// Validates a new run before its first step, or does what a signal has kept an earlier start from: validates, and
  /// writes the checkpoint of this step again. False if a signal comes. Collective over the world.
  bool finish_validation(StopSignal const& signal);

  /// The things to be done after a step, the same on every rank.
  struct Requests {
    bool stop = false;     ///< a rank has been signalled
    bool restore = false;  ///< the run's directory is gone
    bool finish = false;   ///< all ranks have written their parts of a checkpoint
  };
  /// Collective over the world.
  Requests requests(StopSignal const& signal);
  /// Makes the run's directory again and writes a checkpoint there; collective over the world.
  void restore_directory();
  /// Compares the replicas, then writes; collective over the world.
  void save_checkpoint(CheckpointKeeper::Request const& asked);
  /// Leaves a checkpoint of this step on the disk, and nothing in memory; collective over the world.
  void save_final_checkpoint();

  bool finished() const { return validation_.finished(state_) || (input_.exhausted() && !state_.validation_pending); }
  /// For a signal during the next step, or a validation that was left to this start: where the run is, and where the
  /// same command resumes.
  std::string stop_notice() const;
  /// Saves, and ends the run until it is started again. Collective over the world.
  ExitCode stop(StopSignal const& signal);
  /// Reports how the run ended; collective over the world.
  void end(std::string const& how);
  /// For a run that is finished already: does what a start that was killed after its last step has left undone, and
  /// reports. Collective over the world.
  void end_finished();
  /// The state of a finished run, as the report names it.
  std::string final_state() const { return validation_.stopped_early(state_) ? "stopped early" : "done"; }
  Ending outcome(std::string const& how) const;

  TrainerSetup setup_;
  Config const& config_;
  RunInput input_;
  RunValidation validation_;
  RunOutput output_;
  RunModel model_;
  CheckpointKeeper checkpoints_;
  TrainingState state_;
  std::int64_t stage_ = 0;  ///< RunInput::stage after the last step
  FiniteSteps finite_steps_;
  LossWatch loss_watch_;                               ///< rank 0's
  std::chrono::steady_clock::time_point next_look_{};  ///< at the run's directory
};

}  // namespace heddle
