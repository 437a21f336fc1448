#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <heddle/io/checkpoint/checkpoint.hpp>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

class FileLock;
struct MemoryCheckpoint;

/// The name of a step's checkpoint: "step-00001000".
std::string checkpoint_directory_name(std::int64_t step);
/// The step of such a name; nothing for any other name.
std::optional<std::int64_t> checkpoint_step(std::string const& directory_name);

struct CommitResult {
  std::filesystem::path directory;
  bool already_there = false;      ///< a verified checkpoint of this step existed and was kept
  std::vector<std::string> notes;  ///< for the log: what was moved aside, cleaned up, or could not be removed
  std::string times;               ///< for the log: how long a large checkpoint took; "" for others
};

struct CheckpointEntry {
  std::int64_t step = 0;
  std::filesystem::path directory;
  std::int64_t bytes = 0;
  bool best = false;
  std::string problem;  ///< empty if no error was found
};

/// A checkpoint on its way from the memory of the hosts to the disk, while training continues: each rank that wrote
/// files there copies them in a thread that calls neither MPI nor HDF5. CheckpointStore starts and finishes it;
/// destroying an unfinished one stops it and removes what it wrote.
class BackgroundCommit {
 public:
  struct Parts;

  explicit BackgroundCommit(std::unique_ptr<Parts> parts);
  ~BackgroundCommit();
  BackgroundCommit(BackgroundCommit const&) = delete;
  BackgroundCommit& operator=(BackgroundCommit const&) = delete;

  std::int64_t step() const;
  /// True once this rank's thread has ended, also if it failed.
  bool done() const;

 private:
  friend class CheckpointStore;
  std::unique_ptr<Parts> parts_;
};

/// The checkpoints of one run: `runs/NAME/checkpoints/step-…`, and `best`, a symbolic link to one of them. Functions
/// that take a communicator are collective over it: every rank gets the same result or the same error.
class CheckpointStore {
 public:
  /// Called when commit reaches a named point: temporary_created, on each writer tensors_synced and tensors_read_back,
  /// then on rank 0 state_written, state_synced, read_back, manifest_written, manifest_synced, renamed, parent_synced,
  /// pruned.
  using Observer = std::function<void(std::string_view point)>;
  using Report = std::function<void(std::string const& message)>;

  /// Stores the directory's name and does nothing else. At least two checkpoints are kept, whatever `keep` says.
  CheckpointStore(std::filesystem::path directory, std::int64_t keep);

  std::filesystem::path const& directory() const { return directory_; }

  /// Writes a checkpoint so that after a crash at any moment it is either complete and verified or absent, and then
  /// prunes old ones (never `best`). Tensors go from the ranks that hold them to `writers` ranks (0: one on each host);
  /// everything else is rank 0's. Throws Error on failure, with ExitCode::loss_not_finite for numbers that must not be
  /// kept; older checkpoints are then unchanged.
  CommitResult commit(Communicator const& world, CheckpointContents const& contents, TensorStream& tensors,
                      std::int64_t writers, Observer const& observe = {});

  /// Starts to write a checkpoint that is in memory: `from` is what MemoryStore::commit returned. Throws Error as
  /// `commit` does; the points are temporary_created here, and those from manifest_written on in `finish`.
  std::unique_ptr<BackgroundCommit> begin(Communicator const& world, MemoryCheckpoint const& from,
                                          Observer const& observe = {}) const;
  /// Waits until all ranks have written, and commits. Throws Error as `commit` does.
  CommitResult finish(Communicator const& world, std::unique_ptr<BackgroundCommit> begun, Observer const& observe = {});

  struct Writing;

  /// Points `best` at a committed step, atomically. Throws Error if there is no such checkpoint.
  void mark_best(std::int64_t step);
  /// Brings `best` into line with a run whose best step is this one, 0 if it has none: a kill may have come between a
  /// checkpoint and its mark. Removes a mark of a later step, and keeps a mark of an earlier step if there is no
  /// checkpoint of `step`.
  void settle_best(std::int64_t step);
  std::optional<std::int64_t> best_step() const;

  /// Pruning also leaves the newest checkpoint that is not newer than this step; nothing: none. On rank 0 only.
  void protect(std::optional<std::int64_t> step) { protected_ = step; }

  /// The newest step by the names of the checkpoints; nothing is read.
  std::optional<std::int64_t> newest_step() const;

  /// The newest checkpoint whose bytes all verify; each newer one is reported with the reason why it does not. Nothing
  /// if there are no checkpoints; throws DataError (exit 65) if there are some and none verifies. Checkpoints that do
  /// not verify are neither counted nor removed when this object prunes.
  std::optional<Checkpoint> newest_verified(Report const& report, Communicator const& world = Communicator::self());

  /// Opens the checkpoint of `step`. Throws DataError if it does not verify or there is none.
  Checkpoint of_step(std::int64_t step, Communicator const& world = Communicator::self()) const;

  /// Opens the checkpoint of `step`, then moves newer ones aside to `rejected-…`, so that the run continues from there.
  /// Throws DataError, and moves nothing, as of_step does. Reports what it moves on rank 0.
  Checkpoint go_back(std::int64_t step, Report const& report, Communicator const& world);

  enum class Check { sizes, all_bytes };
  /// Removes a checkpoint of this store. Its name goes first, so that a crash leaves none with files missing. Throws
  /// std::filesystem::filesystem_error.
  void remove(std::filesystem::path const& checkpoint) const;
  /// All checkpoints, oldest first, each with the result of its verification.
  std::vector<CheckpointEntry> list(Check check) const;

 private:
  std::filesystem::path path_of(std::int64_t step) const { return directory_ / checkpoint_directory_name(step); }
  std::string temporary_name(std::string const& what) const;
  /// Locks the store, removes leftovers and makes the directory to write in; false if the step's checkpoint is there
  /// already and verifies.
  bool prepare(Communicator const& world, Writing& writing, std::int64_t bytes, Observer const& reached) const;
  /// Gives the directory its name, and prunes old checkpoints. Called on rank 0 only.
  void publish(Writing& writing, Observer const& reached);
  void move_best_aside() const;
  bool keep_existing(Communicator const& world, std::int64_t step, CommitResult& result) const;
  std::filesystem::path move_aside(std::filesystem::path const& checkpoint) const;
  void remove_leftovers(FileLock& lock, CommitResult& result) const;
  void prune(std::int64_t committed_step, CommitResult& result);

  std::filesystem::path directory_;
  std::int64_t keep_;
  std::set<std::int64_t> rejected_;  ///< steps whose checkpoints did not verify
  std::optional<std::int64_t> protected_;
};

/// The checkpoints at a place, oldest first: a checkpoint's own directory (or the link `best`), a checkpoints
/// directory, or a run's. Throws DataError if there is no such directory.
std::vector<CheckpointEntry> list_checkpoints(std::filesystem::path const& place, CheckpointStore::Check check);

}  // namespace heddle
