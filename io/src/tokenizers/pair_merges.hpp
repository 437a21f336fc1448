#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace heddle {

/// The merges of byte-pair encoding (Sennrich et al. 2016): the pair of neighbours whose merge is first in the list of
/// merges is merged, of equal ones the leftmost, until no pair of the list is left.
class PairMerges {
 public:
  /// The next merge, by ids.
  void add(std::int32_t left, std::int32_t right, std::int32_t both);

  /// Merges the ids of a word, of which there are less than 2^32.
  void apply(std::vector<std::int32_t>& ids) const;

 private:
  struct Merge {
    std::uint32_t rank;
    std::int32_t id;
  };
  Merge const* merge_of(std::int32_t left, std::int32_t right) const;

  std::unordered_map<std::uint64_t, Merge> merges_;  // by both ids
  std::uint32_t rank_ = 0;                           // of the next one
};

}  // namespace heddle
