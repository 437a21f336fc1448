#pragma once

#include <algorithm>
#include <cstdint>
#include <heddle/core/base/index_range.hpp>
#include <vector>

namespace heddle {

/// A range of indices on each axis of a tensor, as one rank holds them of a whole tensor. Elements of the slice and of
/// the tensor are numbered row major, so they are in the same order in both. Used for initial values, saving and
/// loading alike.
class Slice {
 public:
  Slice() = default;
  /// These ranges of the tensor's first axes, and all indices of its others; the ranges lie within the extents.
  explicit Slice(std::vector<std::int64_t> extents, std::vector<IndexRange> ranges = {});

  /// One range for each axis.
  std::vector<IndexRange> const& ranges() const { return ranges_; }
  std::int64_t size() const;
  /// The number of its elements before element `index` of the tensor, which may be the tensor's end.
  std::int64_t before(std::int64_t index) const;
  /// Calls `visit(first, index, count)` for runs of `elements` of the slice, in their order, that are adjacent in the
  /// tensor: `count` elements from `first` of the slice, and from `index` of the tensor.
  template <class Visit>
  void for_each_run(IndexRange const& elements, Visit const& visit) const {
    std::int64_t const run = run_length();
    for (std::int64_t first = elements.begin; first < elements.end;) {
      std::int64_t const count = std::min(run - first % run, elements.end - first);
      visit(first, index_of(first), count);
      first += count;
    }
  }

 private:
  std::int64_t run_length() const;
  /// The number in the tensor of an element of the slice.
  std::int64_t index_of(std::int64_t element) const;

  std::vector<std::int64_t> extents_;
  std::vector<IndexRange> ranges_;
};

}  // namespace heddle
