#include "block_message.hpp"

#include <fmt/format.h>

#include <heddle/core/base/error.hpp>

namespace heddle {

std::span<std::uint8_t const> BlockMessage::verified(FileDigest const& file, std::int64_t block, int sender) {
  std::span<std::uint8_t const> const received = bytes(block_bytes(file, block));
  if (sha256(received) != file.blocks[static_cast<std::size_t>(block)]) {
    throw DataError(fmt::format("{}: {} came damaged from rank {}", file.name, describe_block(file, block), sender));
  }
  return received;
}

}  // namespace heddle
