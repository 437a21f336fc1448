#pragma once

#include <cstdint>

namespace heddle {

/// The indices [begin, end).
struct IndexRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t count() const { return end - begin; }
  bool operator==(IndexRange const&) const = default;
};

/// The contiguous share [count * rank / ranks, count * (rank + 1) / ranks) of [0, count) that `rank` of `ranks` has.
/// Shares differ by at most one; with more ranks than indices some are empty.
constexpr IndexRange share(std::int64_t count, std::int64_t rank, std::int64_t ranks) {
  return {count * rank / ranks, count * (rank + 1) / ranks};
}

/// The smallest multiple of `multiple` that is at least `count`.
constexpr std::int64_t rounded_up(std::int64_t count, std::int64_t multiple) {
  return (count + multiple - 1) / multiple * multiple;
}

/// A cache line in elements of 4 bytes. Arrays that share a buffer start on lines, so that they have the same alignment
/// in every micro-batch and step.
inline constexpr std::int64_t line_elements = 16;

/// One rank's place in a group that divides rows among its ranks.
struct GroupMember {
  int rank = 0;
  int ranks = 1;
};

/// The rank whose share contains `index`.
constexpr int owner_of(std::int64_t index, std::int64_t count, int ranks) {
  return static_cast<int>(((index + 1) * ranks - 1) / count);
}

}  // namespace heddle
