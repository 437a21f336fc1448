#pragma once

#include <filesystem>
#include <heddle/core/base/error.hpp>
#include <heddle/io/checkpoint/store.hpp>
#include <heddle/io/files/file_lock.hpp>
#include <heddle/io/tensors/manifest.hpp>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "files/pending_file.hpp"

namespace heddle {

/// The file whose lock the writers to a store share.
inline constexpr char const* store_lock_name = ".lock";

/// A checkpoint that is being written.
struct CheckpointStore::Writing {
  std::int64_t step = 0;
  CommitResult result;
  std::optional<FileLock> lock;                   ///< rank 0's
  std::optional<UnfinishedDirectory> unfinished;  ///< rank 0's
  std::filesystem::path place;                    ///< of `unfinished`, on all ranks
  bool pending = false;                           ///< rank 0's: its state has a validation that is not done
  bool replaces = false;                          ///< the checkpoint of this step that is there has one, and this not
};

/// The state of training in a checkpoint, whose state file alone is read and verified. Throws DataError.
TrainingState read_state(std::filesystem::path const& checkpoint);

/// The problem of a checkpoint, "" if it has none. Collective over `world`, which matters for all_bytes.
std::string checkpoint_problem(std::filesystem::path const& directory, CheckpointStore::Check check,
                               Communicator const& world = Communicator::self());

/// The step whose checkpoint the link beside these names, where it is one of them; 0 for none.
std::int64_t linked_best(std::span<CheckpointEntry const> entries);

/// Sets CheckpointEntry::best of the entry of that step. Returns false if there is none.
bool flag_best(std::vector<CheckpointEntry>& entries, std::optional<std::int64_t> step);

/// Writes the manifest, the last file, and syncs its directory. Calls `reached` with the points of its progress.
void write_manifest(std::filesystem::path const& directory, Manifest const& manifest,
                    CheckpointStore::Observer const& reached);

/// Runs `action`, and names the step and the place, " to memory" or none, in its error.
template <class Action>
void write_step(std::int64_t step, Action const& action, std::string const& place = "") {
  try {
    action();
  } catch (std::bad_alloc const&) {
    throw;
  } catch (Error const& error) {
    throw Error("checkpoint of step " + std::to_string(step) + " was not written" + place + ": " + error.what(),
                error.code() == ExitCode::loss_not_finite ? error.code() : ExitCode::failure);
  }
}

}  // namespace heddle
