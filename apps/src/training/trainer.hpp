#pragma once

#include <filesystem>
#include <heddle/core/base/error.hpp>
#include <heddle/dist/state/model_stream.hpp>
#include <heddle/dist/state/whole_model.hpp>
#include <heddle/dist/training/training_engine.hpp>
#include <heddle/dist/watch/watch.hpp>
#include <heddle/io/samples/batch_reader.hpp>
#include <heddle/io/samples/batches.hpp>
#include <heddle/io/samples/training_data.hpp>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "loss_watch.hpp"
#include "run/checkpoints/initialization.hpp"
#include "run/configuration/kernel_cache.hpp"
#include "run/configuration/options.hpp"
#include "run/metrics/measure.hpp"
#include "run/metrics/training_log.hpp"
#include "run/report/run_report.hpp"
#include "run/report/run_text.hpp"
#include "stop_signal.hpp"
#include "training/checkpoint_keeper.hpp"

namespace heddle {

/// The objects that exist before a training run; all of them outlive the trainer.
struct TrainerSetup {
  TrainOptions const& options;
  Config const& config;  ///< with the options' overrides and plug-ins
  Registries const& registries;
  RunKernels const& kernels;
  ParallelState const& parallel;
  Execution& execution;
  Watch& watch;
  std::filesystem::path directory;  ///< the run's; made once the configuration and the data have been checked
  std::string instruction_set;      ///< a description of the kernels'
  std::string command;              ///< the whole command line
  std::string resume_command;       ///< the command line that resumes: without options that hold only once
  StepTimes& times;                 ///< measures the world's communicator
  StepTrace* trace = nullptr;       ///< observes the kernels; null: nothing is traced
  std::int64_t clock_offset = 0;    ///< this rank's, see write_trace
};

/// One training run: batches, steps, validation, checkpoints. Made and run by all ranks together.
class Trainer {
 public:
  /// Opens the data, builds the model, locks the run's directory, and continues from the newest verified checkpoint
  /// there, or starts. Throws ConfigError if another process trains there or if that checkpoint belongs to another
  /// model, data order or vocabulary, DataError if none verifies. Collective over the world.
  static std::unique_ptr<Trainer> create(TrainerSetup const& setup);

  /// Trains to the configured end, or to early stopping (ExitCode::done), or until `signal` (ExitCode::requeue, after
  /// a checkpoint). A step whose loss or gradient is not finite is run again, and its batch is skipped if it repeats;
  /// throws Error with loss_not_finite after FiniteSteps::max_skipped in a row. Collective over the world.
  ExitCode run(StopSignal const& signal);

 private:
  explicit Trainer(TrainerSetup const& setup);

  // The steps of `create`, in order.
  void open_data();
  /// Prints the changed keys and the mesh, plans the memory before it is allocated.
  void announce();
  /// Warns where sentences that are too long are a share of the data that a user would miss.
  void print_warnings();
  void build_model();
  /// Finds what a run without a checkpoint takes from another one.
  void plan_initialization();
  /// Throws ConfigError, on rank 0, where the disk has no room for a checkpoint; warns where it will be too small.
  void require_room();
  /// Makes and locks the run's directory. Called on rank 0 only.
  void take_directory();
  void open_directory();
  void resume_or_start();
  void open_log();

  /// Trains the parameters that the configuration unfreezes after `updates` updates or fewer, and no others that it
  /// freezes. Collective over the world.
  void unfreeze(std::int64_t updates);
  /// The tensors of checkpoints when all parameters are trained that ever are.
  std::vector<StreamedTensor> largest_tensors() const;
  /// The checkpoint from which the run continues, checked, with everything that this rank reads on its host.
  std::optional<Checkpoint> find_checkpoint();
  void restore(Checkpoint const& checkpoint);
  /// Forgets what was measured on other data than this start has.
  void restore_losses(Checkpoint const& checkpoint);
  /// Where another measure decides than `before`, or the validation set is new: starts from the best value on this set
  /// whose checkpoint is there, or from none, and says so. Collective over the world.
  void restart_best(Measure const& before, bool new_data);
  void print_start();
  /// Writes the start of the report, and starts the trace.
  void begin_report();
  void write_report() const;
  /// Reports how the run ended; collective over the world.
  void print_end(std::string const& how);
  /// For a run that is finished already: does what a start that was killed after its last step has left undone, and
  /// reports. Collective over the world.
  void end_finished();
  Ending outcome(std::string const& how) const;
  /// Writes the report of a start that made no step.
  void conclude_report(Ending const& ending);
  /// Writes the trace if its last step has been made, or no more steps are; collective over the world.
  void finish_trace(bool last_step);
  /// For a signal during the next step, or a validation that was left to this start: where the run is, and where the
  /// same command resumes.
  std::string stop_notice() const;
  StepReport train_step();
  /// Makes a step and records it while the run is traced; a validation between two steps is not recorded.
  StepReport traced_step();
  /// The passes over each corpus of a mixture; on rank 0.
  std::map<std::string, double> corpus_epochs() const;
  MicroBatchSource const& next_batch();
  /// Reports a step that was not finite; throws Error with loss_not_finite if there were too many in a row.
  void report_not_finite(FiniteSteps::Outcome const& outcome);
  /// Does the work after a step: validation, checkpoints.
  void after_step(StepReport const& report, StopSignal const& signal);
  /// Validates, and counts the result. Nothing if a signal comes before it is done: then the state says so, and the run
  /// that resumes from it calls finish_validation.
  std::optional<ValidationResult> validate_unless(StopSignal const& signal);
  /// Warns of problems that a validation shows, and says when it ends the run.
  void report_validation(ValidationResult const& validation);
  /// Validates a new run before its first step, or does what a signal has kept an earlier start from: validates, and
  /// writes the checkpoint of this step again. False if a signal comes. Collective over the world.
  bool finish_validation(StopSignal const& signal);
  /// Saves, and ends the run until it is started again. Collective over the world.
  ExitCode stop(StopSignal const& signal);
  bool validates_after(std::int64_t step) const;
  bool finished(TrainingState const& state) const;
  bool finished() const { return finished(state_); }
  bool stopped_early(TrainingState const& state) const;
  /// The state of a finished run, as the report names it.
  std::string final_state() const { return stopped_early(state_) ? "stopped early" : "done"; }
  /// The things to be done after a step, the same on every rank.
  struct Requests {
    bool stop = false;     ///< a rank has been signalled
    bool restore = false;  ///< the run's directory is gone
    bool finish = false;   ///< all ranks have written their parts of a checkpoint
  };
  /// Collective over the world.
  Requests requests(StopSignal const& signal) const;
  /// Makes the run's directory again and writes a checkpoint there; collective over the world.
  void restore_directory();
  /// Compares the replicas, then writes; collective over the world.
  void save_checkpoint(CheckpointKeeper::Request const& asked);
  /// Points the link at the best checkpoint.
  void link_best();
  /// Commits a checkpoint that was begun, if there is one; collective over the world.
  void finish_checkpoint();
  /// Leaves a checkpoint of this step on the disk, and nothing in memory; collective over the world.
  void save_final_checkpoint();
  void log(CheckpointKeeper::Results const& results);
  ModelStream stream() const;
  /// The parameters that are left to the base.
  std::set<std::string> left_out() const;
  bool is_rank_zero() const { return setup_.parallel.world.rank() == 0; }

  TrainerSetup setup_;
  Config const& config_;
  std::optional<TrainingData> data_;
  std::string valid_digest_;  ///< digest of the data that state_.best_value is of; "": unknown
  Measure best_measure_;      ///< which state_.best_value is of
  std::optional<BatchReader> reader_;
  std::optional<RunReport> report_;
  std::optional<TrainingEngine> engine_;
  std::optional<WholeModel> whole_model_;
  std::optional<Initialization> initialization_;  ///< until the run has started
  std::map<std::string, std::string> origin_;     ///< CheckpointContents::origin
  std::int64_t origin_bytes_ = 0;                 ///< of it, before it is known; rank 0's
  std::int64_t unfrozen_ = 0;                     ///< the argument of the last call of unfreeze
  CheckpointBase base_;                           ///< CheckpointContents::base
  CheckpointKeeper checkpoints_;
  TrainingState state_;
  FiniteSteps finite_steps_;
  LossWatch loss_watch_;                   ///< rank 0's
  bool warned_of_attention_ = false;       ///< a warning said that attention is uniform
  std::optional<RunDirectory> directory_;  ///< rank 0's
  RunLog log_;
  std::optional<TrainingLog> training_log_;  ///< rank 0's
  bool tracing_ = false;                     ///< until the trace is written
};

}  // namespace heddle
