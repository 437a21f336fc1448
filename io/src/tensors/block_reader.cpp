#include "block_reader.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <heddle/core/base/error.hpp>
#include <heddle/io/files/sha256.hpp>
#include <utility>

namespace heddle {

BlockCache::Block const* BlockCache::find(void const* reader, std::int64_t number) {
  auto const found = std::find_if(blocks_.begin(), blocks_.end(),
                                  [&](Block const& block) { return block.reader == reader && block.number == number; });
  if (found == blocks_.end()) {
    return nullptr;
  }
  found->last_use = ++uses_;
  return &*found;
}

BlockCache::Block& BlockCache::recycle() {
  Block& block = *std::min_element(blocks_.begin(), blocks_.end(),
                                   [](Block const& a, Block const& b) { return a.last_use < b.last_use; });
  block.reader = nullptr;
  return block;
}

void BlockCache::keep(Block& block, void const* reader, std::int64_t number) {
  block.reader = reader;
  block.number = number;
  block.last_use = ++uses_;
}

BlockReader::BlockReader(std::filesystem::path path, FileDigest digest, std::shared_ptr<BlockCache> cache)
    : path_(std::move(path)), digest_(std::move(digest)), file_(open_regular(path_)), cache_(std::move(cache)) {}

std::vector<std::uint8_t> const& BlockReader::bytes_of(std::int64_t number) {
  if (BlockCache::Block const* const known = cache_->find(this, number)) {
    return known->bytes;
  }
  BlockCache::Block& block = cache_->recycle();
  std::int64_t const begin = number * manifest_block_bytes;
  block.bytes.resize(static_cast<std::size_t>(std::min(manifest_block_bytes, digest_.bytes - begin)));
  for (std::size_t filled = 0; filled < block.bytes.size();) {
    ssize_t const got = ::pread(file_.get(), block.bytes.data() + filled, block.bytes.size() - filled,
                                static_cast<off_t>(begin + static_cast<std::int64_t>(filled)));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      throw DataError(path_.string() + ": cannot be read: " + (got < 0 ? std::strerror(errno) : "it became shorter"));
    }
    filled += static_cast<std::size_t>(got);
  }
  if (sha256(block.bytes) != digest_.blocks[static_cast<std::size_t>(number)]) {
    throw DataError(path_.string() + ": " + describe_block(digest_, number) + " do not have the SHA-256 that " +
                    manifest_file_name + " states");
  }
  cache_->keep(block, this, number);
  return block.bytes;
}

void BlockReader::read(std::int64_t offset, std::span<std::uint8_t> bytes) {
  while (!bytes.empty()) {
    if (offset >= digest_.bytes) {
      std::fill(bytes.begin(), bytes.end(), std::uint8_t{0});
      return;
    }
    std::vector<std::uint8_t> const& block = bytes_of(offset / manifest_block_bytes);
    auto const within = static_cast<std::size_t>(offset % manifest_block_bytes);
    std::size_t const count = std::min(block.size() - within, bytes.size());
    std::memcpy(bytes.data(), block.data() + within, count);
    bytes = bytes.subspan(count);
    offset += static_cast<std::int64_t>(count);
  }
}

void BlockReader::write(std::int64_t, std::span<std::uint8_t const>) {
  throw Error(path_.string() + ": is read only");
}

void BlockReader::resize(std::int64_t) {
  throw Error(path_.string() + ": is read only");
}

}  // namespace heddle
