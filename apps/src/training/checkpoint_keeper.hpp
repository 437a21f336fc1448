#pragma once

#include <cstdint>
#include <filesystem>
#include <heddle/core/config/config.hpp>
#include <heddle/core/parallel/communicator.hpp>
#include <heddle/io/checkpoint/memory_store.hpp>
#include <heddle/io/checkpoint/store.hpp>
#include <optional>
#include <string>
#include <vector>

#include "run_directory.hpp"

namespace heddle {

/// The state that a run keeps: checkpoints on disk and, if `[checkpoint]` asks for them, in the memory of its hosts.
/// Everything is collective over the world.
class CheckpointKeeper {
 public:
  struct Setup {
    Config const& config;
    Communicator const& world;
    std::filesystem::path directory;  ///< the run's
  };

  explicit CheckpointKeeper(Setup const& setup);

  /// Finds the memory of the directory, which is given on rank 0. Throws Error with
  /// ExitCode::bad_config if a host has no room for what will be kept there.
  void open(RunDirectory const* directory, std::vector<StreamedTensor> const& tensors);

  /// The newest verified checkpoint, in memory or on disk; nothing if there are none. Reports, on rank 0, why newer
  /// ones are not used. Throws DataError if there are some on disk and none verifies.
  std::optional<Checkpoint> newest(CheckpointStore::Report const& report);
  std::optional<Checkpoint> newest_on_disk(CheckpointStore::Report const& report);
  /// Goes back to a step on disk, and forgets what is in memory.
  Checkpoint go_back(std::int64_t step, CheckpointStore::Report const& report);

  struct Request {
    bool disk = false;
    bool best = false;  ///< mark the one on disk as the best
    bool memory = false;
  };
  /// The part of a request that is still to be done.
  Request left_of(Request const& asked, std::int64_t step) const;
  /// Writes the state, and returns notes for the log. Throws Error as CheckpointStore::commit does; what could not be
  /// kept in memory alone is only noted.
  std::vector<std::string> keep(CheckpointContents const& contents, TensorStream& tensors, Request const& request);

  /// The run's directory was made again: nothing of what was kept counts. It is given on rank 0.
  void start_over(RunDirectory const* directory);
  /// Removes what is in memory, once the run has ended and the disk has all of it.
  void close();

  /// The newest step on disk, -1 if there is none.
  std::int64_t committed_step() const { return committed_step_; }
  std::filesystem::path const& directory() const { return disk_.directory(); }

 private:
  bool uses_memory() const { return setup_.config.checkpoint.memory_every_steps > 0; }
  void find_memory(RunDirectory const* directory);
  void keep_in_memory(CheckpointContents const& contents, TensorStream& tensors, std::vector<std::string>& notes);

  Setup setup_;
  CheckpointStore disk_;
  std::optional<MemoryStore> memory_;
  bool memory_failed_ = false;  ///< the last one could not be kept
  std::int64_t committed_step_ = -1;
};

}  // namespace heddle
