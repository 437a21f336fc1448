#include "block_reader.hpp"

#include <algorithm>
#include <cstring>
#include <heddle/core/base/error.hpp>
#include <heddle/io/files/sha256.hpp>

namespace heddle {

void BlockReader::load(std::int64_t block, std::vector<std::uint8_t>& bytes) const {
  bytes.resize(static_cast<std::size_t>(block_bytes(digest_, block)));
  if (read_at(file_, path_, block * manifest_block_bytes, bytes) < bytes.size()) {
    throw DataError(path_.string() + ": cannot be read: it became shorter");
  }
  if (sha256(bytes) != digest_.blocks[static_cast<std::size_t>(block)]) {
    throw DataError(path_.string() + ": " + describe_block(digest_, block) + " do not have the SHA-256 that " +
                    manifest_file_name + " states");
  }
}

BlockCache::Bytes const& BlockReader::bytes_of(std::int64_t number) {
  return cache_->block(this, number, [&](BlockCache::Bytes& bytes) { load(number, bytes); });
}

void BlockReader::read(std::int64_t offset, std::span<std::uint8_t> bytes) {
  while (!bytes.empty()) {
    if (offset >= digest_.bytes) {
      std::fill(bytes.begin(), bytes.end(), std::uint8_t{0});
      return;
    }
    BlockCache::Bytes const& block = bytes_of(offset / manifest_block_bytes);
    auto const within = static_cast<std::size_t>(offset % manifest_block_bytes);
    std::size_t const count = std::min(block.size() - within, bytes.size());
    std::memcpy(bytes.data(), block.data() + within, count);
    bytes = bytes.subspan(count);
    offset += static_cast<std::int64_t>(count);
  }
}

void BlockReader::refuse() const {
  throw Error(path_.string() + ": is read only");
}

}  // namespace heddle
