#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/tensor/arena.hpp>
#include <string>

#include "system_memory.hpp"

namespace heddle {

namespace {

constexpr std::size_t alignment = 64;

}  // namespace

Arena::Arena(std::size_t capacity) : wanted_(capacity) {}

Arena::~Arena() {
  if (block_ != nullptr) {
    unmap_block({block_, capacity_});
  }
}

std::size_t Arena::default_capacity() {
  return std::size_t{1} << (kernel_memory_space() == MemorySpace::host ? 36 : 32);
}

void Arena::require_block() {
  if (block_ == nullptr) {
    ArenaBlock const block = map_block(wanted_);
    block_ = block.begin;
    capacity_ = block.bytes;
  }
}

Tensor Arena::allocate(DType dtype, Shape const& shape) {
  require_block();
  std::size_t const bytes = static_cast<std::size_t>(shape.size()) * size_of(dtype);
  std::size_t const rounded = std::max(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (rounded > capacity_ - used_) {
    std::string const limit =
        capacity_ < wanted_ ? fmt::format(" (`ulimit -v` or strict overcommit refused it {} bytes)", wanted_) : "";
    throw Error(
        fmt::format("the arena of {} bytes{} is full: {} in use, {} more asked for; smaller micro-batches "
                    "(train.micro_batch_tokens) need less",
                    capacity_, limit, used_, rounded));
  }
  Tensor const tensor = Tensor::borrow(block_ + used_, dtype, shape);
  used_ += rounded;
  peak_ = std::max(peak_, used_);
  return tensor;
}

void Arena::reserve(std::size_t bytes) {
  require_block();
  if (bytes > capacity_) {
    throw Error(fmt::format("an arena of {} bytes cannot reserve {}", capacity_, bytes));
  }
  take_pages({block_, capacity_}, bytes);
}

void Arena::release(std::size_t mark) {
  used_ = std::min(used_, mark);
}

}  // namespace heddle
