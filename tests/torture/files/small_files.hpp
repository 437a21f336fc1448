#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

/// Files as small as they can be, so that all of their bits can be tried.
namespace heddle {

struct SmallCheckpoint {
  std::int64_t step = 1;
  std::uint64_t seed = 1;  ///< all numbers depend on it and on the step
  std::int64_t keep = 9;
  bool by_thread = false;  ///< through memory and the thread of checkpoint.async
  std::int64_t best = 0;   ///< the best step
};

/// Writes a checkpoint with about 60 KB into a store. Returns its directory.
std::filesystem::path small_checkpoint(std::filesystem::path const& store, SmallCheckpoint const& options);

/// The files in a directory, in the order of their names.
std::vector<std::filesystem::path> files_in(std::filesystem::path const& directory);

/// Writes a new file in the place of one that is there, so that other hard links to it stay as they are.
void write_file(std::filesystem::path const& path, std::string const& content);

/// Opens a checkpoint and reads all of its tensors.
void load_all(std::filesystem::path const& checkpoint);

/// A SentencePiece model with about 30 pieces and no table of characters: some hundred bytes.
std::string small_vocabulary();

/// Writes a dataset. Returns the path.
std::filesystem::path small_dataset(std::filesystem::path const& path, int pairs = 40);

/// All that training reads from a dataset.
struct Samples {
  std::string digest;
  std::vector<std::vector<std::int32_t>> sentences;
  bool operator==(Samples const&) const = default;
};
Samples read_samples(std::filesystem::path const& dataset);

}  // namespace heddle
