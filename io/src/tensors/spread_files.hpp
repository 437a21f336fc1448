#pragma once

#include <filesystem>
#include <heddle/core/parallel/communicator.hpp>
#include <heddle/io/tensors/manifest.hpp>
#include <memory>
#include <string>
#include <vector>

#include "block_exchange.hpp"
#include "tensors/block_reader.hpp"
#include "tensors/hosts.hpp"

namespace heddle {

/// The files of a checkpoint of which each host of a world has some, in a directory of its own.
class SpreadFiles {
 public:
  struct Place {
    Hosts hosts;
    std::filesystem::path directory;  ///< the checkpoint on this host; empty: it has none
    std::filesystem::path scratch;    ///< a new directory on this host, for blocks from others
  };

  /// Verifies every byte of every copy. Throws DataError on all ranks, with everything that was found, unless each file
  /// of the manifest is complete on some host. Collective over `world`.
  SpreadFiles(Communicator const& world, Place place, Manifest manifest);
  SpreadFiles(SpreadFiles const&) = delete;
  SpreadFiles& operator=(SpreadFiles const&) = delete;
  /// Removes the scratch directory.
  ~SpreadFiles();

  Manifest const& manifest() const { return manifest_; }
  /// The bytes of the first file, the state's, on all ranks. Collective over the world.
  std::string state();
  /// The reader of file `number` of the manifest, null if this rank has no part of it.
  std::shared_ptr<BlockReader> const& reader(std::size_t number) const { return readers_[number]; }
  /// True on one of the ranks that have the file.
  bool parses(std::size_t number) const;
  /// Errors in copies of files of which another host has a complete copy.
  std::vector<std::string> const& notes() const { return notes_; }

  /// For each file of the manifest, each of its blocks: true if this rank needs it.
  using Blocks = std::vector<std::vector<bool>>;
  /// Brings blocks that this host lacks to its scratch directory, each once, one at a time for each rank, and verifies
  /// them. Throws Error on all ranks if that fails. Collective over the world.
  void fetch(Blocks const& needed);

 private:
  void agree(std::vector<std::uint8_t> const& found, std::string const& problem);
  /// This rank's part of what its host lacks.
  std::vector<BlockCopy> requests(Blocks const& needed, Communicator const& host) const;
  void exchange(std::vector<BlockCopy> const& own);
  /// A rank that sends blocks of the file to this one.
  int server(std::size_t file) const;
  bool has(std::size_t host, std::size_t file) const;

  Communicator world_;
  Place place_;
  Manifest manifest_;
  std::shared_ptr<BlockCache> cache_ = make_block_cache();
  std::vector<std::shared_ptr<BlockReader>> readers_;
  std::vector<std::vector<std::size_t>> holders_;  ///< [file]: hosts with a complete copy
  std::vector<std::string> notes_;
};

}  // namespace heddle
