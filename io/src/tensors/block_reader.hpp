#pragma once

#include <filesystem>
#include <heddle/io/hdf5/hdf5.hpp>
#include <heddle/io/tensors/manifest.hpp>
#include <memory>
#include <vector>

#include "files/block_cache.hpp"
#include "files/file_descriptor.hpp"

namespace heddle {

/// The memory that the readers of a checkpoint's files share: a few blocks.
inline std::shared_ptr<BlockCache> make_block_cache() {
  return std::make_shared<BlockCache>(4 * manifest_block_bytes);
}

/// A file of a checkpoint, read in whole blocks, each of which is compared with its digest in the memory from which it
/// is then used: no byte is used that was not verified. Throws DataError for a block that is not as the manifest
/// states, and for one that cannot be read.
class BlockReader final : public hdf5::ByteStore {
 public:
  /// `digest` is the manifest's. Symbolic links are refused.
  BlockReader(std::filesystem::path path, FileDigest digest, std::shared_ptr<BlockCache> cache)
      : path_(std::move(path)), digest_(std::move(digest)), file_(open_regular(path_)), cache_(std::move(cache)) {}

  std::filesystem::path const& path() const { return path_; }
  FileDigest const& digest() const { return digest_; }
  std::int64_t blocks() const { return std::ssize(digest_.blocks); }
  void verify(std::int64_t block) { bytes_of(block); }
  /// Reads a block, which is compared with its digest in `bytes`. May be called from several threads.
  void load(std::int64_t block, std::vector<std::uint8_t>& bytes) const;

  std::int64_t size() const override { return digest_.bytes; }
  void read(std::int64_t offset, std::span<std::uint8_t> bytes) override;
  void write(std::int64_t /*offset*/, std::span<std::uint8_t const> /*bytes*/) override { refuse(); }
  void resize(std::int64_t /*size*/) override { refuse(); }

 private:
  BlockCache::Bytes const& bytes_of(std::int64_t block);
  [[noreturn]] void refuse() const;

  std::filesystem::path path_;
  FileDigest digest_;
  FileDescriptor file_;
  std::shared_ptr<BlockCache> cache_;
};

}  // namespace heddle
