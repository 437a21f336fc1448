#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <heddle/io/checkpoint/checkpoint.hpp>
#include <memory>
#include <optional>
#include <set>
#include <span>
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

/// The best checkpoint of a run, by its checkpoints' own records.
struct BestCheckpoint {
  std::optional<std::int64_t> step;     ///< nothing if no record names a checkpoint that is there
  std::optional<std::int64_t> missing;  ///< the step that the newest record names, if its checkpoint is not there
};
/// Finds the best one of a store's checkpoints, which come oldest first. The newest one without a problem names it in
/// its record or, where that one is not there, an older one does. Where its record names none, the link `best` beside
/// them counts: it is all that versions before TrainingState::earlier_best kept after a change of the metric or of the
/// validation set. Reads state files, no tensors.
BestCheckpoint best_of(std::span<CheckpointEntry const> entries);

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

/// The checkpoints of one run: `runs/NAME/checkpoints/step-…`, and `best`, a symbolic link to the best one for people
/// and other programs: copying loses links. Heddle reads it only where no record names one (see best_of). Functions
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
  /// The number of newest checkpoints that pruning leaves.
  std::int64_t keep() const { return keep_; }

  /// The bytes of a checkpoint with these tensors, without its state file.
  static std::int64_t planned_bytes(std::vector<StreamedTensor> const& tensors);
  /// The bytes that are free for checkpoints, with those that the next commit removes; the store need not exist yet.
  /// The maximum where the file system does not say.
  std::int64_t free_bytes() const;

  /// Writes a checkpoint so that after a crash at any moment it is either complete and verified or absent, and then
  /// points the link at the best one and prunes old ones, but not that. Tensors go from the ranks that hold them to
  /// `writers` ranks (0: one on each host); everything else is rank 0's. Throws Error on failure, with
  /// ExitCode::loss_not_finite for numbers that must not be kept; older checkpoints are then unchanged.
  CommitResult commit(Communicator const& world, CheckpointContents const& contents, TensorStream& tensors,
                      std::int64_t writers, Observer const& observe = {});

  /// Starts to write a checkpoint that is in memory: `from` is what MemoryStore::commit returned. Throws Error as
  /// `commit` does; the points are temporary_created here, and those from manifest_written on in `finish`.
  std::unique_ptr<BackgroundCommit> begin(Communicator const& world, MemoryCheckpoint const& from,
                                          Observer const& observe = {}) const;
  /// Waits until all ranks have written, and commits. Throws Error as `commit` does.
  CommitResult finish(Communicator const& world, std::unique_ptr<BackgroundCommit> begun, Observer const& observe = {});

  struct Writing;

  /// Points the link at the best checkpoint of a run that is at this step, atomically. Returns why it could not, "" if
  /// it could.
  std::string link_best(std::int64_t step) const;

  /// The step of the complete checkpoint, not newer than a step, that the link names; 0 for none.
  std::int64_t linked_best(std::int64_t newest) const;

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
  /// All checkpoints, oldest first, each with the result of its verification. One that is removed meanwhile is not in
  /// the list.
  std::vector<CheckpointEntry> list(Check check) const;

 private:
  std::filesystem::path path_of(std::int64_t step) const { return directory_ / checkpoint_directory_name(step); }
  std::string temporary_name(std::string const& what) const;
  /// Locks the store, removes leftovers and makes the directory to write in; false if the step's checkpoint is there
  /// already and verifies.
  bool prepare(Communicator const& world, Writing& writing, std::int64_t bytes, Observer const& reached) const;
  /// Gives the directory its name, sets the link, and prunes old checkpoints. Called on rank 0 only.
  void publish(Writing& writing, Observer const& reached);
  /// The complete checkpoints up to a step, oldest first, without those that did not verify.
  std::vector<CheckpointEntry> usable(std::int64_t newest) const;
  std::string link_best(std::vector<CheckpointEntry> const& usable) const;
  void move_best_aside() const;
  bool keep_existing(Communicator const& world, Writing& writing) const;
  void replace(Writing& writing) const;
  std::filesystem::path move_aside(std::filesystem::path const& checkpoint) const;
  void remove_leftovers(FileLock& lock, CommitResult& result) const;
  void prune(std::vector<CheckpointEntry> const& usable) const;

  std::filesystem::path directory_;
  std::int64_t keep_;
  std::set<std::int64_t> rejected_;  ///< steps whose checkpoints did not verify
  std::optional<std::int64_t> protected_;
};

/// The checkpoints at a place, oldest first: a checkpoint's own directory (or `best`, also where that link is missing),
/// a checkpoints directory, or a run's. Throws DataError if there is no such directory.
std::vector<CheckpointEntry> list_checkpoints(std::filesystem::path const& place, CheckpointStore::Check check);

}  // namespace heddle
