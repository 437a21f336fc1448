#pragma once

#include <array>
#include <filesystem>
#include <heddle/io/checkpoint/manifest.hpp>
#include <heddle/io/hdf5/hdf5.hpp>
#include <memory>
#include <vector>

#include "files/file_descriptor.hpp"

namespace heddle {

/// The verified blocks that were used last; shared by the readers of a checkpoint's files, which together keep no more.
class BlockCache {
 public:
  struct Block {
    void const* reader = nullptr;  ///< null: unused
    std::int64_t number = 0;
    std::int64_t last_use = 0;
    std::vector<std::uint8_t> bytes;
  };

  /// The block, if it is here.
  Block const* find(void const* reader, std::int64_t number);
  /// The block that was not used for longest, now unused; keep() makes it the reader's.
  Block& recycle();
  void keep(Block& block, void const* reader, std::int64_t number);

 private:
  std::array<Block, 4> blocks_;
  std::int64_t uses_ = 0;
};

/// A file of a checkpoint, read in whole blocks, each of which is compared with its digest in the memory from which it
/// is then used: nobody gets a byte that was not verified. Throws DataError for a block that is not as the manifest
/// states, and for one that cannot be read.
class BlockReader final : public hdf5::ByteStore {
 public:
  /// `digest` is the manifest's. Symbolic links are refused.
  BlockReader(std::filesystem::path path, FileDigest digest, std::shared_ptr<BlockCache> cache);

  std::filesystem::path const& path() const { return path_; }
  std::int64_t blocks() const { return std::ssize(digest_.blocks); }
  void verify(std::int64_t block) { bytes_of(block); }

  std::int64_t size() const override { return digest_.bytes; }
  void read(std::int64_t offset, std::span<std::uint8_t> bytes) override;
  void write(std::int64_t offset, std::span<std::uint8_t const> bytes) override;
  void resize(std::int64_t size) override;

 private:
  std::vector<std::uint8_t> const& bytes_of(std::int64_t block);

  std::filesystem::path path_;
  FileDigest digest_;
  FileDescriptor file_;
  std::shared_ptr<BlockCache> cache_;
};

}  // namespace heddle
