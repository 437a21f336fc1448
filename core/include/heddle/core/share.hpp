#pragma once

#include <cstdint>

namespace heddle {

/// The indices [begin, end) of one rank.
struct Share {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t count() const { return end - begin; }
  bool operator==(Share const&) const = default;
};

/// Rank `rank`'s contiguous share of [0, count) among `ranks`: [count * rank / ranks, count * (rank + 1) / ranks).
/// Shares differ by at most one; with more ranks than indices some are empty.
Share share(std::int64_t count, int rank, int ranks);

/// The rank in whose share `index` is.
int owner_of(std::int64_t index, std::int64_t count, int ranks);

}  // namespace heddle
