#include <heddle/core/tensor/slice.hpp>

#include "test.hpp"

namespace heddle {
namespace {

using Extents = std::vector<std::int64_t>;
using Ranges = std::vector<IndexRange>;

/// The numbers in the tensor of the slice's elements, in their order.
std::vector<std::int64_t> indices_of(Extents const& extents, Ranges const& ranges) {
  std::vector<std::int64_t> indices{0};
  for (std::size_t axis = 0; axis < extents.size(); ++axis) {
    IndexRange const range = axis < ranges.size() ? ranges[axis] : IndexRange{0, extents[axis]};
    std::vector<std::int64_t> longer;
    for (std::int64_t const before : indices) {
      for (std::int64_t index = range.begin; index < range.end; ++index) {
        longer.push_back(before * extents[axis] + index);
      }
    }
    indices = std::move(longer);
  }
  return indices;
}

TEST(SliceTest, KnowsWhereItsElementsAre) {
  for (Ranges const& ranges : {Ranges{}, Ranges{{1, 3}}, Ranges{{0, 3}, {2, 4}}, Ranges{{0, 3}, {0, 5}, {3, 4}},
                               Ranges{{2, 3}, {1, 4}, {1, 3}}, Ranges{{1, 1}}, Ranges{{0, 3}, {4, 4}}}) {
    Extents const extents{3, 5, 4};
    Slice const slice(extents, ranges);
    std::vector<std::int64_t> const expected = indices_of(extents, ranges);
    EXPECT_EQ(slice.size(), std::ssize(expected));
    for (std::int64_t index = 0; index <= 60; ++index) {
      EXPECT_EQ(slice.before(index), std::ranges::count_if(expected, [=](auto each) { return each < index; })) << index;
    }
    for (std::int64_t begin = 0; begin <= slice.size(); ++begin) {
      for (std::int64_t end = begin; end <= slice.size(); ++end) {
        std::vector<std::int64_t> found;
        slice.for_each_run({begin, end}, [&](std::int64_t first, std::int64_t index, std::int64_t count) {
          EXPECT_EQ(first, begin + std::ssize(found));
          found.resize(found.size() + static_cast<std::size_t>(count));
          std::iota(found.end() - count, found.end(), index);
        });
        EXPECT_THAT(found, testing::ElementsAreArray(expected.begin() + begin, expected.begin() + end));
      }
    }
  }
}

TEST(SliceTest, RunsAreAsLongAsElementsAreAdjacent) {
  auto const runs = [](Ranges const& ranges) {
    Slice const slice({3, 5, 4}, ranges);
    int count = 0;
    slice.for_each_run({0, slice.size()}, [&](auto...) { ++count; });
    return count;
  };
  EXPECT_EQ(runs({}), 1);
  EXPECT_EQ(runs({{1, 3}}), 1);
  EXPECT_EQ(runs({{0, 3}, {2, 4}}), 3);
  EXPECT_EQ(runs({{0, 3}, {0, 5}, {1, 3}}), 15);
}

}  // namespace
}  // namespace heddle
