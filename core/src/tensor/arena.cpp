#include <fmt/format.h>

#include <heddle/core/base/error.hpp>
#include <heddle/core/tensor/arena.hpp>

#include "memory/system_memory.hpp"

namespace heddle {

namespace {

constexpr std::size_t alignment = 64;
constexpr std::size_t address_bytes = std::size_t{1} << 36;

}  // namespace

Arena::Arena(std::size_t capacity, Kind kind)
    : kind_(kernel_memory_space() == MemorySpace::host ? Kind::memory : kind), wanted_(capacity) {}

Arena::~Arena() {
  if (block_ == nullptr) {
    return;
  }
  if (kind_ == Kind::memory) {
    unmap_block({block_, capacity_});
  } else {
    unmap_addresses({block_, capacity_});
  }
}

std::size_t Arena::default_capacity(Kind kind) {
  return kind == Kind::addresses ? address_bytes : default_block_bytes();
}

void Arena::plan(std::size_t bytes) {
  if (kernel_memory_space() == MemorySpace::host) {
    return;
  }
  if (block_ != nullptr && capacity_ < bytes) {
    throw Error("an arena of {} bytes is in use: it cannot be planned to have {}", capacity_, bytes);
  }
  wanted_ = bytes;
  planned_ = true;
}

void Arena::require_block() {
  if (block_ == nullptr) {
    ArenaBlock const block = kind_ == Kind::memory ? map_block(wanted_) : map_addresses(wanted_);
    block_ = block.begin;
    capacity_ = block.bytes;
  }
}

std::string Arena::full(std::size_t more) const {
  std::string limit;
  if (capacity_ < wanted_) {
    limit = fmt::format(" (`ulimit -v` or strict overcommit refused it {} bytes)", wanted_);
  } else if (planned_) {
    limit = fmt::format(" (as the memory plan says; train.reserve_memory = false allows each arena {} bytes)",
                        default_capacity());
  }
  return fmt::format(
      "the arena of {} bytes{} is full: {} in use, {} more asked for; smaller micro-batches (train.micro_batch_tokens) "
      "need less",
      capacity_, limit, used_, more);
}

Tensor Arena::allocate(DType dtype, Shape const& shape) {
  require_block();
  std::size_t const bytes = static_cast<std::size_t>(shape.size()) * size_of(dtype);
  std::size_t const rounded = std::max(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (rounded > capacity_ - used_) {
    throw Error(full(rounded));
  }
  Tensor const tensor = Tensor::borrow(block_ + used_, dtype, shape);
  used_ += rounded;
  peak_ = std::max(peak_, used_);
  return tensor;
}

bool Arena::contains(Tensor const& tensor) const {
  auto const address = reinterpret_cast<std::uintptr_t>(tensor.raw());
  auto const begin = reinterpret_cast<std::uintptr_t>(block_);
  return address >= begin && address < begin + capacity_;
}

void Arena::reserve(std::size_t bytes) {
  require_block();
  if (bytes > capacity_) {
    throw Error("an arena of {} bytes cannot reserve {}", capacity_, bytes);
  }
  take_pages({block_, capacity_}, bytes);
}

}  // namespace heddle
