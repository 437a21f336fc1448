#pragma once

#include <filesystem>
#include <heddle/dist/state/whole_model.hpp>
#include <heddle/dist/training/training_engine.hpp>
#include <heddle/io/checkpoint/store.hpp>
#include <heddle/io/dataset/batches.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cache.hpp"
#include "log.hpp"
#include "report/run_report.hpp"
#include "stop_signal.hpp"

namespace heddle {

/// What a training run is made of, all of it outliving the trainer.
struct TrainerSetup {
  Config const& config;
  Registries const& registries;
  RunKernels const& kernels;
  ParallelState const& parallel;
  Execution& execution;
  std::filesystem::path directory;  ///< of the run; made once everything else has been found right
  std::string instruction_set;      ///< of the kernels, in words
};

/// One training run: batches, steps, validation, checkpoints. Built and run by all ranks together.
class Trainer {
 public:
  /// Builds the model and goes on from the newest verified checkpoint in the run's directory, or starts. ConfigError
  /// where that checkpoint belongs to another model, data order or vocabulary; DataError where none verifies.
  explicit Trainer(TrainerSetup const& setup);

  /// Trains to the configured end, or to early stopping (ExitCode::done), or until `signal` (ExitCode::requeue, after a
  /// checkpoint). Throws Error with loss_not_finite where the loss or the gradient is no number.
  ExitCode run(StopSignal const& signal);

 private:
  void resume_or_start();
  void take_up(Checkpoint const& checkpoint);
  /// Says what is going to be trained, and where, before memory is taken for it.
  RunReport announce() const;
  void print_start() const;
  /// Memory and communication; collective over the world.
  void print_end();
  StepReport train_step();
  /// How this rank's micro-batches are cut from a global batch.
  MicroBatchCut micro_batch_cut() const;
  /// What follows a step: validation, checkpoints.
  void after_step(StepReport const& report);
  bool stopped_early() const;
  /// True on every rank as soon as any has been signalled; collective over the world.
  bool stop_requested(StopSignal const& signal) const;
  /// Compares the replicas, then rank 0 writes; collective over the world.
  void commit_checkpoint(bool best);
  bool speaks() const { return setup_.parallel.world.rank() == 0; }

  TrainerSetup setup_;
  Config const& config_;
  Dataset train_data_;
  std::optional<Dataset> valid_data_;
  DatasetSamples samples_;
  BatchPlanner batches_;
  RunReport report_;
  TrainingEngine engine_;
  WholeModel whole_model_;
  CheckpointStore checkpoints_;
  TrainingState state_;
  std::int64_t committed_step_ = -1;
  std::unique_ptr<RunDirectory> directory_;  ///< rank 0's
  std::unique_ptr<TrainingLog> log_;         ///< rank 0's
};

}  // namespace heddle
