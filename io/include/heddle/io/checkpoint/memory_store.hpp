#pragma once

#include <cstdint>
#include <filesystem>
#include <heddle/io/checkpoint/checkpoint.hpp>
#include <heddle/io/checkpoint/store.hpp>
#include <heddle/io/tensors/manifest.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace heddle {

struct Hosts;

/// A checkpoint in the memory of the hosts.
struct MemoryCheckpoint {
  std::filesystem::path directory;  ///< on this rank's host
  Manifest manifest;
  std::vector<int> writers;  ///< the ranks that wrote the files of tensors, in their order
};

/// The checkpoints of one run in the memory of its hosts: files of the ordinary format, below a directory of each host
/// that outlives processes (tmpfs). Each host has the files that its ranks wrote, those of the host before, and the
/// state file and manifest. The newest one is kept. Everything is collective over the world, and throws the same error
/// on all ranks.
class MemoryStore {
 public:
  struct Place {
    std::filesystem::path root;  ///< checkpoint.memory_directory
    std::filesystem::path run;   ///< the run's directory, by its canonical path
    std::string identity;        ///< 16 characters that change if the directory is made again
  };

  /// `place` is rank 0's. Changes nothing.
  MemoryStore(Communicator const& world, Place const& place);
  ~MemoryStore();

  /// True if a directory is on a file system in memory, false if not or not known.
  static bool is_in_memory(std::filesystem::path const& directory);

  /// This host's directory.
  std::filesystem::path const& directory() const { return directory_; }

  /// Throws an Error with ExitCode::bad_config unless the root is a directory that has, on each host, room for
  /// `checkpoints` of these tensors, each with `origin_bytes` of CheckpointContents::origin. The space that this run
  /// already uses there counts as free.
  void require_room(std::vector<StreamedTensor> const& tensors, std::int64_t origin_bytes, std::int64_t writers,
                    int checkpoints) const;

  /// Writes a checkpoint and removes older ones. `writers`: how many ranks write tensors; 0: up to four on each host.
  /// Throws Error on failure, with ExitCode::loss_not_finite for numbers that must not be kept; the older one is then
  /// unchanged.
  MemoryCheckpoint commit(CheckpointContents const& contents, TensorStream& tensors, std::int64_t writers);

  /// The newest checkpoint of which every file has a complete copy on some host; newer ones are reported, on rank 0,
  /// with the reason why they have not.
  std::optional<Checkpoint> newest_verified(CheckpointStore::Report const& report) const;

  /// Removes what a directory of the same name, but another identity, has left on these hosts.
  void remove_stale() const;
  /// Removes everything of this run from these hosts.
  void remove() const;

 private:
  void make_own_directory() const;
  /// Copies the files of tensors to the buddies of their hosts.
  void copy_to_buddies(std::filesystem::path const& place, MemoryCheckpoint const& made) const;
  /// Removes everything in this host's directory but `keep`.
  void prune(std::filesystem::path const& keep) const;
  void remove_named(bool own) const;

  Communicator world_;
  std::unique_ptr<Hosts> hosts_;
  std::filesystem::path root_;
  std::string run_name_;  ///< the beginning of the names of this run's directories, of any identity
  std::filesystem::path directory_;
};

}  // namespace heddle
