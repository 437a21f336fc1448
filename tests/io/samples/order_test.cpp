#include <heddle/io/samples/order.hpp>

#include "test.hpp"

namespace heddle {
namespace {

TEST(PermutationTest, EachNumberComesOnceForManySizes) {
  std::vector<std::int64_t> sizes(300);
  std::iota(sizes.begin(), sizes.end(), 1);
  sizes.insert(sizes.end(), {1023, 1024, 1025, 4095, 4097, 65'536, 100'003});
  for (std::int64_t const size : sizes) {
    std::vector<bool> seen(static_cast<std::size_t>(size));
    Permutation const permutation(size, 17, size % 3);
    for (std::int64_t place = 0; place < size; ++place) {
      std::int64_t const image = permutation(place);
      ASSERT_TRUE(image >= 0 && image < size) << size;
      ASSERT_FALSE(seen[static_cast<std::size_t>(image)]) << size << ": " << image << " comes twice";
      seen[static_cast<std::size_t>(image)] = true;
    }
  }
}

TEST(PermutationTest, ItLooksRandomAndFollowsKeyAndEpoch) {
  constexpr std::int64_t size = 10'000;
  auto const images = [](std::uint64_t key, std::int64_t epoch) {
    std::vector<std::int64_t> all;
    for (std::int64_t place = 0; place < size; ++place) {
      all.push_back(Permutation(size, key, epoch)(place));
    }
    return all;
  };
  auto const first = images(1, 0);
  EXPECT_EQ(images(1, 0), first);
  for (auto const& other : {images(1, 1), images(2, 0)}) {
    std::int64_t same = 0;
    for (std::size_t place = 0; place < first.size(); ++place) {
      same += first[place] == other[place] ? 1 : 0;
    }
    EXPECT_LT(same, 10) << "1 is expected";
  }
  // Neighbours go apart, and rank correlation with the identity is small (deviation 0.01).
  double correlation = 0;
  std::int64_t adjacent = 0;
  for (std::int64_t place = 0; place < size; ++place) {
    auto const image = static_cast<double>(first[static_cast<std::size_t>(place)]);
    correlation += (static_cast<double>(place) - (size - 1) / 2.0) * (image - (size - 1) / 2.0);
    adjacent +=
        place > 0 && std::abs(first[static_cast<std::size_t>(place)] - first[static_cast<std::size_t>(place - 1)]) == 1
            ? 1
            : 0;
  }
  EXPECT_LT(std::abs(correlation / (size * (static_cast<double>(size) * size - 1) / 12)), 0.05);
  EXPECT_LT(adjacent, 12) << "2 are expected";
}

TEST(WindowOrderTest, WindowsHoldEachItemOnceInBlocksFromAnywhere) {
  for (std::int64_t const size : {1, 9, 10, 11, 29, 30, 31, 1000, 1007}) {
    WindowOrder const order(size, 3, {.block_items = 10, .window_blocks = 3});
    EXPECT_EQ(order.windows(), (size + 29) / 30);
    std::set<std::int64_t> seen;
    for (std::int64_t window = 0; window < order.windows(); ++window) {
      auto const items = order.window(2, window);
      EXPECT_TRUE(std::ranges::is_sorted(items));
      EXPECT_FALSE(items.empty());
      seen.insert(items.begin(), items.end());
      EXPECT_LE(items.size(), 30U);
    }
    EXPECT_EQ(std::ssize(seen), size);
    EXPECT_EQ(*seen.rbegin(), size - 1);
  }
  WindowOrder const order(1000, 3, {.block_items = 10, .window_blocks = 3});
  EXPECT_NE(order.window(0, 1), order.window(1, 1));
  EXPECT_GT(order.window(0, 1).back() - order.window(0, 1).front(), 30);
  WindowOrder const plain(1000, std::nullopt, {.block_items = 10, .window_blocks = 3});
  EXPECT_EQ(plain.window(0, 1).front(), 30);
  EXPECT_EQ(plain.window(5, 1).back(), 59);
}

}  // namespace
}  // namespace heddle
