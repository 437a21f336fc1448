#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace heddle {

/// The random place of [0, last] with which a shuffle exchanges place `last`.
std::size_t shuffled_place(std::size_t last, std::uint64_t key, std::int64_t epoch, std::int64_t window);

/// Shuffles `order` (Fisher and Yates), as a pure function of the key, the epoch and the window.
template <class T>
void shuffle(std::vector<T>& order, std::uint64_t key, std::int64_t epoch, std::int64_t window = 0) {
  for (std::size_t last = order.empty() ? 0 : order.size() - 1; last > 0; --last) {
    std::swap(order[last], order[shuffled_place(last, key, epoch, window)]);
  }
}

/// A pseudo-random permutation of [0, size), a pure function of key and epoch that costs constant time and memory: a
/// Feistel network on the bits of a number, applied again until the number lies below `size` ("cycle walking", Black
/// and Rogaway 2002).
class Permutation {
 public:
  /// `size` is at least 1.
  Permutation(std::int64_t size, std::uint64_t key, std::int64_t epoch);
  std::int64_t operator()(std::int64_t place) const;

 private:
  std::uint64_t network(std::uint64_t number) const;

  std::uint64_t size_;
  std::uint64_t key_;
  std::uint64_t epoch_;
  unsigned half_bits_ = 1;  ///< of the numbers that the network permutes
};

/// The division of an epoch's items (pairs, or lines) into windows, whose lengths a reader can hold in memory. A block
/// is a run of adjacent items of a file, a window some blocks from anywhere in it, which the key and the epoch choose.
/// Items are to be shuffled within their window; a set of one window is shuffled wholly.
class WindowOrder {
 public:
  struct Sizes {
    std::int64_t block_items = 8192;
    std::int64_t window_blocks = 16;
  };

  /// Without a key windows are in the items' order. `size` is at least 1.
  WindowOrder(std::int64_t size, std::optional<std::uint64_t> key) : WindowOrder(size, key, Sizes()) {}
  WindowOrder(std::int64_t size, std::optional<std::uint64_t> key, Sizes const& sizes);

  std::int64_t windows() const;
  /// The items of a window of [0, windows()), ascending.
  std::vector<std::int64_t> window(std::int64_t epoch, std::int64_t window) const;

 private:
  std::int64_t size_;
  std::int64_t blocks_;
  std::optional<std::uint64_t> key_;
  Sizes sizes_;
};

}  // namespace heddle
