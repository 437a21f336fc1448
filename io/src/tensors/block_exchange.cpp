#include "block_exchange.hpp"

#include <fmt/format.h>

#include <heddle/core/base/error.hpp>

namespace heddle {

namespace {

constexpr std::int64_t word = sizeof(std::int32_t);

Tensor new_message() {
  return Tensor::allocate_on_host(DType::int32, {manifest_block_bytes / word});
}

}  // namespace

Tensor BlockExchange::words(Tensor const& memory, std::size_t bytes) {
  return memory.rows(0, (static_cast<std::int64_t>(bytes) + word - 1) / word);
}

std::span<std::uint8_t> BlockExchange::bytes_of(Tensor const& memory, BlockCopy const& copy) const {
  return {static_cast<std::uint8_t*>(memory.raw()),
          static_cast<std::size_t>(block_bytes(manifest_.files[copy.file], copy.block))};
}

void BlockExchange::copy(std::vector<BlockCopy> const& blocks) {
  std::vector<Transfer> sends;
  for (BlockCopy const& copy : blocks) {
    if (copy.sender == world_.rank()) {
      if (sends.size() == sent_.size()) {
        sent_.push_back(new_message());
      }
      Tensor const& message = sent_[sends.size()];
      std::span const bytes = bytes_of(message, copy);
      error_.attempt([&] { reader_of_(copy.file).read(copy.block * manifest_block_bytes, bytes); });
      sends.push_back(world_.start_send(words(message, bytes.size()), copy.receiver));
    }
  }
  for (BlockCopy const& copy : blocks) {
    if (copy.receiver == world_.rank()) {
      received_ = received_.raw() == nullptr ? new_message() : received_;
      std::span const bytes = bytes_of(received_, copy);
      world_.receive(words(received_, bytes.size()), copy.sender);
      error_.attempt([&] { write(copy, bytes); });
    }
  }
  for (Transfer& send : sends) {
    send.wait();
  }
}

void BlockExchange::write(BlockCopy const& copy, std::span<std::uint8_t const> received) const {
  FileDigest const& file = manifest_.files[copy.file];
  if (sha256(received) != file.blocks[static_cast<std::size_t>(copy.block)]) {
    throw DataError("{}: {} came damaged from rank {}", file.name, describe_block(file, copy.block), copy.sender);
  }
  std::filesystem::path const path = directory_ / file.name;
  FileDescriptor const to(path, O_WRONLY);
  if (!to.is_open()) {
    fail_with_errno(path, "open the file");
  }
  write_at(to, path, copy.block * manifest_block_bytes, received);
}

void BlockExchange::finish() const {
  run_collectively(world_, [&] { error_.rethrow(); });
}

}  // namespace heddle
