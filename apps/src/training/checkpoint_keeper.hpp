#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <heddle/core/config/config.hpp>
#include <heddle/core/parallel/communicator.hpp>
#include <heddle/io/checkpoint/memory_store.hpp>
#include <heddle/io/checkpoint/store.hpp>
#include <memory>
#include <optional>
#include <vector>

#include "run/directory/run_directory.hpp"
#include "run/directory/run_log.hpp"

namespace heddle {

/// The state that a run keeps: checkpoints on disk and, if `[checkpoint]` asks for them, in the memory of its hosts.
/// Everything is collective over the world. What was done goes into the log.
class CheckpointKeeper {
 public:
  struct Setup {
    Config const& config;
    Communicator const& world;
    std::filesystem::path directory;  ///< the run's
    RunLog& log;
  };

  explicit CheckpointKeeper(Setup const& setup);

  /// Finds the memory of the directory, which is given on rank 0. Throws Error with ExitCode::bad_config if a host has
  /// no room for what will be kept there; a run that has checkpoints continues without.
  void open(RunDirectory const* directory, std::vector<StreamedTensor> const& tensors, std::int64_t origin_bytes);
  /// Until the next call no checkpoint that a run whose loss has risen since `step` can go back to is removed: see
  /// CheckpointStore::protect.
  void protect(std::optional<std::int64_t> step) { disk_.protect(step); }

  /// The newest verified checkpoint, in memory or on disk; nothing if there are none. Reports, on rank 0, why newer
  /// checkpoints are not used. Throws DataError if there are some on disk and none verifies.
  std::optional<Checkpoint> newest(CheckpointStore::Report const& report);
  std::optional<Checkpoint> newest_on_disk(CheckpointStore::Report const& report);
  /// Goes back to a step on disk, and forgets what is in memory.
  Checkpoint go_back(std::int64_t step, CheckpointStore::Report const& report);

  struct Request {
    bool disk = false;
    bool again = false;  ///< also if the disk has this step, without the validation after it
    bool memory = false;
    bool wait = false;  ///< the one on disk is written on return, also with checkpoint.async
  };
  /// The part of a request that is still to be done.
  Request remaining(Request const& asked, std::int64_t step) const;
  /// Writes the state; with checkpoint.async the checkpoint on disk is only started, and the previous one is finished.
  /// A save that fails is made twice more, with a warning. Throws Error as CheckpointStore::commit does; if only memory
  /// fails, that is noted.
  void keep(CheckpointContents const& contents, TensorStream& tensors, Request const& request);

  /// True while a checkpoint on disk is started and not finished.
  bool in_flight() const { return in_flight_ != nullptr; }
  /// True while this rank still writes it.
  bool writes() const { return in_flight_ && !in_flight_->done(); }
  /// CheckpointStore::linked_best. Collective over the world.
  std::int64_t linked_best(std::int64_t newest) const;
  /// Points the link `best` at the best checkpoint of a run at this step: see CheckpointStore::link_best.
  void link_best(std::int64_t step) const;
  /// Waits for all ranks' parts of a started checkpoint, if there is one, and commits it. Throws Error as `keep` does.
  void finish();

  /// The run's directory was made again: nothing of what was kept counts. It is given on rank 0.
  void start_over(RunDirectory const* directory);
  /// Removes what is in memory, once the run has ended and the disk has all of it.
  void close();

  /// The newest step on disk, -1 if there is none.
  std::int64_t committed_step() const { return committed_step_; }
  /// The newest step in memory, -1 if there is none.
  std::int64_t memory_step() const { return memory_step_; }
  std::filesystem::path const& directory() const { return disk_.directory(); }

 private:
  bool uses_memory() const { return checkpoint().memory_every_steps > 0 || checkpoint().async; }
  CheckpointConfig const& checkpoint() const { return setup_.config.checkpoint; }
  void find_memory(RunDirectory const* directory);
  std::int64_t memory_writers() const { return checkpoint().async ? checkpoint().writers : 0; }
  /// Nothing if it could not be kept.
  std::optional<MemoryCheckpoint> keep_in_memory(CheckpointContents const& contents, TensorStream& tensors);
  void keep_on_disk(CheckpointContents const& contents, TensorStream& tensors, Request const& request);
  void log(CommitResult const& result) const;
  /// Calls save(), up to three times where it fails because of files.
  void insist(std::function<void()> const& save) const;

  Setup setup_;
  CheckpointStore disk_;
  std::optional<MemoryStore> memory_;
  bool memory_failed_ = false;  ///< the last one could not be kept
  std::int64_t committed_step_ = -1;
  std::int64_t memory_step_ = -1;
  std::unique_ptr<BackgroundCommit> in_flight_;
  std::optional<MemoryCheckpoint> source_;  ///< of in_flight_
};

}  // namespace heddle
