#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <heddle/core/parallel/communicator.hpp>
#include <heddle/io/tensors/manifest.hpp>
#include <span>
#include <vector>

#include "parallel/run_collectively.hpp"
#include "tensors/block_reader.hpp"

namespace heddle {

/// A block of a file of a manifest that one rank gets from another.
struct BlockCopy {
  std::size_t file = 0;
  std::int64_t block = 0;
  int sender = -1;
  int receiver = -1;  ///< -1: nothing is copied
};

/// Copies blocks of a checkpoint's files between ranks; each is verified where it is read and again where it arrives.
/// Keeps references to its arguments.
class BlockExchange {
 public:
  /// The reader of a file of which this rank sends blocks.
  using ReaderOf = std::function<BlockReader&(std::size_t file)>;

  /// Blocks that arrive are written into the files in `directory`, which exist.
  BlockExchange(Communicator const& world, Manifest const& manifest, ReaderOf reader_of,
                std::filesystem::path const& directory)
      : world_(world), manifest_(manifest), reader_of_(std::move(reader_of)), directory_(directory) {}

  /// Copies these blocks at the same time; every rank gives the same list. Errors are kept for `finish`, because other
  /// ranks wait for what this one sends. Collective over the world.
  void copy(std::vector<BlockCopy> const& blocks);
  /// Throws the first error on all ranks. Collective over the world.
  void finish() const;

 private:
  /// The first bytes of a message's memory, as the words that travel.
  static Tensor words(Tensor const& memory, std::size_t bytes);
  std::span<std::uint8_t> bytes_of(Tensor const& memory, BlockCopy const& copy) const;
  void write(BlockCopy const& copy, std::span<std::uint8_t const> received) const;

  Communicator const& world_;
  Manifest const& manifest_;
  ReaderOf reader_of_;
  std::filesystem::path const& directory_;
  std::vector<Tensor> sent_;
  Tensor received_;
  FirstError error_;
};

}  // namespace heddle
