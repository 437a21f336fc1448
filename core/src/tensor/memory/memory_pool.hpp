#pragma once

#include <cstddef>
#include <memory>

namespace heddle {

/// Blocks of memory that are expensive to take from the system: those that are given back are used again. Thread-safe.
class MemoryPool {
 public:
  using Source = std::shared_ptr<void> (*)(std::size_t bytes);

  explicit MemoryPool(Source source);

  /// At least this many bytes, which return to the pool when the last owner is gone.
  std::shared_ptr<void> take(std::size_t bytes);
  /// Frees what is not in use; later returns are freed, too, and the pool can still be used.
  void clear();

 private:
  struct State;
  Source source_;
  std::shared_ptr<State> state_;
};

}  // namespace heddle
