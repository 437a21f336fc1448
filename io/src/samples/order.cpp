#include <algorithm>
#include <bit>
#include <heddle/core/base/random.hpp>
#include <heddle/io/samples/order.hpp>

namespace heddle {

std::size_t shuffled_place(std::size_t last, std::uint64_t key, std::int64_t epoch, std::int64_t window) {
  auto const words = Philox::words(key, {static_cast<std::uint32_t>(last), static_cast<std::uint32_t>(last >> 32),
                                         static_cast<std::uint32_t>(epoch), static_cast<std::uint32_t>(window)});
  std::uint64_t const random = (std::uint64_t{words[0]} << 32) | words[1];
  return random % (last + 1);
}

Permutation::Permutation(std::int64_t size, std::uint64_t key, std::int64_t epoch)
    : size_(static_cast<std::uint64_t>(size)), key_(key), epoch_(static_cast<std::uint64_t>(epoch)) {
  auto const bits = static_cast<unsigned>(std::bit_width(size_ - 1));
  half_bits_ = std::max(1U, (bits + 1) / 2);
}

std::uint64_t Permutation::network(std::uint64_t number) const {
  constexpr std::uint32_t rounds = 6;
  std::uint64_t const mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t left = number >> half_bits_;
  std::uint64_t right = number & mask;
  for (std::uint32_t round = 0; round < rounds; ++round) {
    auto const words =
        Philox::words(key_, {static_cast<std::uint32_t>(right), round, static_cast<std::uint32_t>(epoch_),
                             static_cast<std::uint32_t>(epoch_ >> 32)});
    left = std::exchange(right, left ^ (words[0] & mask));
  }
  return (left << half_bits_) | right;
}

std::int64_t Permutation::operator()(std::int64_t place) const {
  auto number = static_cast<std::uint64_t>(place);
  do {
    number = network(number);
  } while (number >= size_);
  return static_cast<std::int64_t>(number);
}

WindowOrder::WindowOrder(std::int64_t size, std::optional<std::uint64_t> key, Sizes const& sizes)
    : size_(size), blocks_((size + sizes.block_items - 1) / sizes.block_items), key_(key), sizes_(sizes) {}

std::int64_t WindowOrder::windows() const {
  return (blocks_ + sizes_.window_blocks - 1) / sizes_.window_blocks;
}

std::vector<std::int64_t> WindowOrder::window(std::int64_t epoch, std::int64_t window) const {
  std::int64_t const begin = window * sizes_.window_blocks;
  std::vector<std::int64_t> blocks;
  for (std::int64_t place = begin; place < std::min(begin + sizes_.window_blocks, blocks_); ++place) {
    blocks.push_back(key_ ? Permutation(blocks_, *key_, epoch)(place) : place);
  }
  std::ranges::sort(blocks);
  std::vector<std::int64_t> items;
  for (std::int64_t const block : blocks) {
    std::int64_t const end = std::min((block + 1) * sizes_.block_items, size_);
    for (std::int64_t item = block * sizes_.block_items; item < end; ++item) {
      items.push_back(item);
    }
  }
  return items;
}

}  // namespace heddle
