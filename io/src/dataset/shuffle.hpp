#pragma once

#include <cstdint>
#include <heddle/core/base/random.hpp>
#include <utility>
#include <vector>

namespace heddle {

/// Shuffles `order` (Fisher and Yates), as a pure function of the key and the epoch.
inline void shuffle(std::vector<std::int64_t>& order, std::uint64_t key, std::int64_t epoch) {
  for (std::size_t last = order.empty() ? 0 : order.size() - 1; last > 0; --last) {
    auto const words = Philox::words(key, {static_cast<std::uint32_t>(last), static_cast<std::uint32_t>(last >> 32),
                                           static_cast<std::uint32_t>(epoch), 0});
    std::uint64_t const random = (std::uint64_t{words[0]} << 32) | words[1];
    std::swap(order[last], order[random % (last + 1)]);
  }
}

}  // namespace heddle
