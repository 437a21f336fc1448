#include <bit>
#include <heddle/core/base/random.hpp>

#include "mpi/rank_order_reduction.hpp"
#include "test.hpp"

namespace heddle {
namespace {

constexpr std::int64_t patterns = 65536;

BFloat16 number_of(std::int64_t bits) {
  return std::bit_cast<BFloat16>(static_cast<std::uint16_t>(bits));
}

/// All bit patterns, in an order of the list's own.
std::vector<BFloat16> all_numbers(std::int64_t list) {
  std::vector<BFloat16> numbers;
  for (std::int64_t index = 0; index < patterns; ++index) {
    numbers.push_back(number_of(index * (2 * list + 1) * 40503 + list));
  }
  return numbers;
}

void expect_sums(std::int64_t lists, std::int64_t count) {
  SCOPED_TRACE(testing::Message() << lists << " lists of " << count);
  std::vector<std::vector<BFloat16>> numbers;
  for (std::int64_t list = 0; list < lists; ++list) {
    numbers.push_back(all_numbers(list));
  }
  std::vector<void const*> parts(numbers.size());
  std::ranges::transform(numbers, parts.begin(), [](auto const& list) { return list.data(); });
  std::vector<float> sums;
  for (std::int64_t index = 0; index < count; ++index) {
    float sum = 0;
    for (std::int64_t list = 0; list < lists; ++list) {
      auto const value = static_cast<float>(numbers[static_cast<std::size_t>(list)][static_cast<std::size_t>(index)]);
      sum = list == 0 ? value : sum + value;
    }
    sums.push_back(sum);
  }
  // In place of the last list, as in an all-reduce.
  combine_parts(DType::bfloat16, ReduceOp::sum, parts, numbers.back().data(), count);
  for (std::int64_t index = 0; index < count; ++index) {
    auto const slot = static_cast<std::size_t>(index);
    BFloat16 const actual = numbers.back()[slot];
    if (std::isnan(sums[slot])) {
      ASSERT_TRUE(std::isnan(static_cast<float>(actual))) << index;
    } else {
      ASSERT_EQ(actual.bits, BFloat16(sums[slot]).bits) << index;
    }
  }
  if (count < patterns) {
    auto const after = static_cast<std::size_t>(count);
    EXPECT_EQ(numbers.back()[after].bits, all_numbers(lists - 1)[after].bits) << "written past the end";
  }
}

// Every processor must give the same bits: NaN, infinities, denormals and ties included.
TEST(CombiningTest, SumsOfBFloat16AreRoundedOnce) {
  expect_sums(2, patterns);
  expect_sums(3, patterns);
  expect_sums(8, 5000);
  expect_sums(2, 17);
  expect_sums(2, 0);
  expect_sums(1, 5000);
}

}  // namespace
}  // namespace heddle
