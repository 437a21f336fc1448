#include "memory_pool.hpp"

#include <bit>
#include <map>
#include <mutex>

namespace heddle {

namespace {

/// Unused blocks are kept up to this size in total.
constexpr std::size_t max_kept = std::size_t{1} << 30;

}  // namespace

struct MemoryPool::State {
  std::mutex mutex;
  std::multimap<std::size_t, std::shared_ptr<void>> free;  ///< by size, a power of two
  std::size_t free_bytes = 0;
  bool keeps = true;
};

MemoryPool::MemoryPool(Source source) : source_(source), state_(std::make_shared<State>()) {}

std::shared_ptr<void> MemoryPool::take(std::size_t bytes) {
  std::size_t const size = std::bit_ceil(bytes);
  std::shared_ptr<void> block;
  {
    std::lock_guard const lock(state_->mutex);
    if (auto const found = state_->free.find(size); found != state_->free.end()) {
      block = std::move(found->second);
      state_->free.erase(found);
      state_->free_bytes -= size;
    }
  }
  if (block == nullptr) {
    block = source_(size);
  }
  void* const begin = block.get();
  return {begin, [state = state_, block = std::move(block), size](void*) mutable {
            std::lock_guard const lock(state->mutex);
            if (state->keeps && state->free_bytes + size <= max_kept) {
              state->free.emplace(size, std::move(block));
              state->free_bytes += size;
            }
          }};
}

void MemoryPool::clear() {
  std::lock_guard const lock(state_->mutex);
  state_->keeps = false;
  state_->free.clear();
  state_->free_bytes = 0;
}

}  // namespace heddle
