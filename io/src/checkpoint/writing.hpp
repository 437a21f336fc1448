#pragma once

#include <filesystem>
#include <heddle/core/base/error.hpp>
#include <heddle/io/checkpoint/manifest.hpp>
#include <heddle/io/checkpoint/store.hpp>
#include <heddle/io/files/file_lock.hpp>
#include <new>
#include <optional>
#include <string>

#include "files/pending_file.hpp"

namespace heddle {

/// A checkpoint that is being written.
struct CheckpointStore::Writing {
  std::int64_t step = 0;
  CommitResult result;
  std::optional<FileLock> lock;                   ///< rank 0's
  std::optional<UnfinishedDirectory> unfinished;  ///< rank 0's
  std::filesystem::path place;                    ///< of `unfinished`, on all ranks
};

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
