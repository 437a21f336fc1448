#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <heddle/core/base/random.hpp>
#include <type_traits>

#include "dist_fixture.hpp"

// The reductions that add ranks in their order: all non-blocking ones, and those of bfloat16.
namespace heddle {
namespace {

/// Numbers of either sign from 1e-6 to 1e6, whose sum depends on its order.
float number(int rank, std::int64_t index) {
  auto const words = Philox::words(7, {static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(index), 0, 0});
  double const exponent = 12 * (static_cast<double>(words[0]) * 0x1.0p-32) - 6;
  return static_cast<float>((words[1] % 2 == 0 ? 1 : -1) * std::pow(10.0, exponent));
}

template <class Element>
std::vector<Element> numbers_of(int rank, std::int64_t count) {
  std::vector<Element> numbers;
  for (std::int64_t index = 0; index < count; ++index) {
    numbers.push_back(static_cast<Element>(number(rank, index)));
  }
  return numbers;
}

/// The ranks' numbers added in order, in float32 where they are bfloat16.
template <class Element>
std::vector<Element> sums_of(int ranks, std::int64_t count) {
  using Sum = std::conditional_t<std::is_same_v<Element, BFloat16>, float, Element>;
  std::vector<Element> sums;
  for (std::int64_t index = 0; index < count; ++index) {
    auto sum = static_cast<Sum>(static_cast<Element>(number(0, index)));
    for (int rank = 1; rank < ranks; ++rank) {
      sum += static_cast<Sum>(static_cast<Element>(number(rank, index)));
    }
    sums.push_back(static_cast<Element>(sum));
  }
  return sums;
}

template <class Element>
void expect_same_bits(Tensor const& actual, std::vector<Element> const& expected) {
  auto const values = to_host<Element>(actual);
  ASSERT_EQ(values.size(), expected.size());
  // memcmp takes no null pointer, which an empty vector may have.
  EXPECT_TRUE(values.empty() || std::memcmp(values.data(), expected.data(), values.size() * sizeof(Element)) == 0);
}

template <class Element>
void check_sums(Communicator const& group) {
  for (std::int64_t const count : {std::int64_t{0}, std::int64_t{1}, std::int64_t{13}, std::int64_t{40000}}) {
    SCOPED_TRACE(testing::Message() << count << " of " << name_of(DTypeOf<Element>::value));
    std::int64_t const all = count * group.size();
    auto const expected = sums_of<Element>(group.size(), all);
    Tensor const whole = tensor_of(numbers_of<Element>(group.rank(), all));
    Tensor const some = tensor_of(numbers_of<Element>(group.rank(), count));
    Tensor const input = tensor_of(numbers_of<Element>(group.rank(), all));
    Tensor const output = Tensor::allocate(DTypeOf<Element>::value, {count});
    Tensor const in_place = tensor_of(numbers_of<Element>(group.rank(), all));
    Tensor const own = in_place.rows(count * group.rank(), count);
    // All in flight at once, and completed in another order than they were started in.
    Transfer first = group.start_all_reduce(whole);
    Transfer second = group.start_all_reduce(some);
    Transfer third = group.start_reduce_scatter(input, output);
    Transfer fourth = group.start_reduce_scatter(in_place, own);
    fourth.wait();
    while (!second.progress()) {
    }
    third.wait();
    first.wait();
    expect_same_bits(whole, expected);
    expect_same_bits(some, std::vector<Element>(expected.begin(), expected.begin() + count));
    auto const part = expected.begin() + count * group.rank();
    expect_same_bits(output, std::vector<Element>(part, part + count));
    expect_same_bits(own, std::vector<Element>(part, part + count));
  }
}

using ReductionTest = DistTest;

TEST_F(ReductionTest, RanksAreAddedInTheirOrder) {
  MpiSession const session(1000);
  for (Communicator const& group : {world_, session.world(), world_.split(world_.rank() % 2, -world_.rank())}) {
    check_sums<float>(group);
    check_sums<double>(group);
    check_sums<BFloat16>(group);
  }
}

TEST_F(ReductionTest, MaximaAndMinimaOfIntegers) {
  Tensor const tensor = tensor_of(std::vector<std::int32_t>{world_.rank(), -world_.rank(), 5});
  world_.start_all_reduce(tensor, ReduceOp::max).wait();
  EXPECT_EQ(to_host<std::int32_t>(tensor), (std::vector<std::int32_t>{world_.size() - 1, 0, 5}));
  world_.start_all_reduce(tensor, ReduceOp::min).wait();
  EXPECT_EQ(to_host<std::int32_t>(tensor), (std::vector<std::int32_t>{world_.size() - 1, 0, 5}));
}

TEST_F(ReductionTest, BlockingSumsOfBFloat16AreTakenInTheRanksOrderToo) {
  std::int64_t const count = 33;
  auto const expected = sums_of<BFloat16>(world_.size(), count * world_.size());
  Tensor const whole = tensor_of(numbers_of<BFloat16>(world_.rank(), count * world_.size()));
  Tensor const rows = Tensor::allocate(DType::bfloat16, {count});
  std::vector<std::int64_t> const counts(static_cast<std::size_t>(world_.size()), count);
  world_.reduce_scatter_rows(whole, rows, counts);
  world_.all_reduce(whole);
  expect_same_bits(whole, expected);
  auto const own = expected.begin() + count * world_.rank();
  expect_same_bits(rows, std::vector<BFloat16>(own, own + count));
}

// 256 + 1 is 256 in bfloat16, whose numbers are two apart there: if each addition were rounded, the ones would be
// lost.
TEST_F(ReductionTest, SumsOfBFloat16AreRoundedOnce) {
  Tensor const tensor = tensor_of(std::vector<BFloat16>{BFloat16(world_.rank() == 0 ? 256.0F : 1.0F)});
  world_.all_reduce(tensor);
  auto const sum = static_cast<float>(255 + world_.size());
  EXPECT_EQ(static_cast<float>(to_host<BFloat16>(tensor)[0]), static_cast<float>(BFloat16(sum)));
}

TEST_F(ReductionTest, IsNotDoneBeforeTheLastRankComes) {
  if (world_.size() == 1) {
    return;  // nobody to wait for
  }
  Tensor const tensor = tensor_of(std::vector<float>(5, 1));
  Transfer sum;
  if (world_.rank() != 0) {
    sum = world_.start_all_reduce(tensor);
    EXPECT_FALSE(sum.progress());
  }
  world_.barrier();
  if (world_.rank() == 0) {
    sum = world_.start_all_reduce(tensor);
  }
  sum.wait();
  EXPECT_EQ(to_host<float>(tensor), std::vector<float>(5, static_cast<float>(world_.size())));
}

TEST_F(ReductionTest, DestroyedItWaits) {
  Tensor const tensor = tensor_of(std::vector<float>(70000, 1));
  { Transfer const dropped = world_.start_all_reduce(tensor); }
  EXPECT_EQ(to_host<float>(tensor), std::vector<float>(70000, static_cast<float>(world_.size())));
}

TEST_F(ReductionTest, TensorsInAnotherMemoryPassThroughTheHosts) {
  std::vector<float> memory(12, static_cast<float>(world_.rank()));
  Tensor const device = Tensor::borrow(memory.data(), DType::float32, {12}, MemorySpace::device);
  auto const size = static_cast<float>(world_.size());
  world_.start_all_reduce(device).wait();
  EXPECT_EQ(memory, std::vector<float>(12, size * (size - 1) / 2));
  world_.all_reduce(device, ReduceOp::max);
  world_.broadcast(device, 0);
  EXPECT_EQ(memory, std::vector<float>(12, size * (size - 1) / 2));
  if (world_.size() > 1) {
    Tensor const sent = tensor_of(std::vector<float>(12, static_cast<float>(world_.rank())));
    Transfer receive = world_.start_receive(device, (world_.rank() + world_.size() - 1) % world_.size());
    world_.send(sent, (world_.rank() + 1) % world_.size());
    receive.wait();
    EXPECT_EQ(memory[0], static_cast<float>((world_.rank() + world_.size() - 1) % world_.size()));
  }
}

}  // namespace
}  // namespace heddle
