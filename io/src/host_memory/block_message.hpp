#pragma once

#include <cstdint>
#include <heddle/core/parallel/communicator.hpp>
#include <heddle/io/checkpoint/manifest.hpp>
#include <span>

namespace heddle {

/// Memory for one block of a file on its way from one rank to another.
class BlockMessage {
 public:
  /// The first `count` bytes, at most a block.
  std::span<std::uint8_t> bytes(std::int64_t count) {
    return {static_cast<std::uint8_t*>(words_.raw()), static_cast<std::size_t>(count)};
  }
  [[nodiscard]] Transfer start_send(Communicator const& world, std::int64_t count, int receiver) const {
    return world.start_send(words_.rows(0, words(count)), receiver);
  }
  void receive(Communicator const& world, std::int64_t count, int sender) const {
    world.receive(words_.rows(0, words(count)), sender);
  }
  /// The bytes of `block` of `file`, as received from `sender`. Throws DataError unless they have its digest.
  std::span<std::uint8_t const> verified(FileDigest const& file, std::int64_t block, int sender);

 private:
  static constexpr std::int64_t word = sizeof(std::int32_t);
  static std::int64_t words(std::int64_t bytes) { return (bytes + word - 1) / word; }

  Tensor words_ = Tensor::allocate_on_host(DType::int32, {manifest_block_bytes / word});
};

}  // namespace heddle
