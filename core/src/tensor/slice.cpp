#include <heddle/core/tensor/slice.hpp>
#include <numeric>
#include <utility>

namespace heddle {

Slice::Slice(std::vector<std::int64_t> extents, std::vector<IndexRange> ranges)
    : extents_(std::move(extents)), ranges_(std::move(ranges)) {
  for (std::size_t axis = ranges_.size(); axis < extents_.size(); ++axis) {
    ranges_.push_back({0, extents_[axis]});
  }
}

std::int64_t Slice::size() const {
  return std::accumulate(ranges_.begin(), ranges_.end(), std::int64_t{1},
                         [](std::int64_t product, IndexRange const& range) { return product * range.count(); });
}

std::int64_t Slice::before(std::int64_t index) const {
  std::int64_t in_slice = size();
  if (in_slice == 0) {
    return 0;
  }
  std::int64_t in_tensor = std::accumulate(extents_.begin(), extents_.end(), std::int64_t{1}, std::multiplies());
  std::int64_t before = 0;
  for (std::size_t axis = 0; axis < extents_.size(); ++axis) {
    auto const& [begin, end] = ranges_[axis];
    in_tensor /= extents_[axis];
    in_slice /= end - begin;
    std::int64_t const along = index / in_tensor;
    before += (std::clamp(along, begin, end) - begin) * in_slice;
    if (along < begin || along >= end) {
      return before;
    }
    index %= in_tensor;
  }
  return before + index;
}

std::int64_t Slice::run_length() const {
  std::int64_t run = 1;
  for (std::size_t axis = extents_.size(); axis-- > 0;) {
    run *= ranges_[axis].count();
    if (ranges_[axis].count() < extents_[axis]) {
      break;
    }
  }
  return run;
}

std::int64_t Slice::index_of(std::int64_t element) const {
  std::int64_t index = 0;
  std::int64_t stride = 1;
  for (std::size_t axis = extents_.size(); axis-- > 0;) {
    std::int64_t const count = ranges_[axis].count();
    index += (ranges_[axis].begin + element % count) * stride;
    element /= count;
    stride *= extents_[axis];
  }
  return index;
}

}  // namespace heddle
