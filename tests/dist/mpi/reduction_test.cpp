#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <heddle/core/base/random.hpp>
#include <thread>
#include <type_traits>

#include "dist_fixture.hpp"
#include "mpi/peer_memory.hpp"

namespace {

/// How the kernel copies between processes.
struct KernelCopies {
  bool permits_probes = true;
  bool permits_blocks = true;
  bool permits_writes = true;
  std::chrono::milliseconds delay{0};
  int writes = 0;  ///< of blocks
};
KernelCopies kernel_copies;

ssize_t kernel_copy(long call, pid_t process, iovec const* own, iovec const* theirs) {
  constexpr std::size_t largest_probe = 64;
  bool const probe = own->iov_len <= largest_probe;
  bool const writes = call == SYS_process_vm_writev;
  kernel_copies.writes += writes && !probe ? 1 : 0;
  if (!(probe ? kernel_copies.permits_probes : kernel_copies.permits_blocks) ||
      (writes && !kernel_copies.permits_writes)) {
    errno = EPERM;
    return -1;
  }
  std::this_thread::sleep_for(kernel_copies.delay);
  return syscall(call, process, own, 1, theirs, 1, 0);
}

}  // namespace

extern "C" ssize_t process_vm_readv(pid_t process, iovec const* own, unsigned long /*own_count*/, iovec const* theirs,
                                    unsigned long /*their_count*/, unsigned long /*flags*/) noexcept {
  return kernel_copy(SYS_process_vm_readv, process, own, theirs);
}

extern "C" ssize_t process_vm_writev(pid_t process, iovec const* own, unsigned long /*own_count*/, iovec const* theirs,
                                     unsigned long /*their_count*/, unsigned long /*flags*/) noexcept {
  return kernel_copy(SYS_process_vm_writev, process, own, theirs);
}

// The reductions that add ranks in their order: all non-blocking ones, those of bfloat16, and reduce-scatters.
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

/// Large blocking sums, which read the other ranks' memory where the kernel permits it.
class MemorySumsTest : public DistTest {
 protected:
  void SetUp() override { kernel_copies = {}; }
  void TearDown() override { kernel_copies = {}; }

  /// This many elements for rank 0, and some more for each next one; they end within a block.
  std::vector<std::int64_t> counts_from(std::int64_t count) const {
    std::vector<std::int64_t> counts(static_cast<std::size_t>(world_.size()));
    std::ranges::generate(counts, [&] { return std::exchange(count, count + 1001); });
    return counts;
  }

  template <class Element>
  void check_scatter(std::vector<std::int64_t> const& counts) {
    auto const own = counts.begin() + world_.rank();
    std::int64_t const begin = std::accumulate(counts.begin(), own, std::int64_t{0});
    std::int64_t const all = std::accumulate(own, counts.end(), begin);
    Tensor const input = tensor_of(numbers_of<Element>(world_.rank(), all));
    Tensor const output = Tensor::allocate(DTypeOf<Element>::value, {*own});
    world_.reduce_scatter_rows(input, output, counts);
    copy_from_host(input,
                   std::vector<Element>(static_cast<std::size_t>(all)).data());  // no other rank reads it any more
    auto const sums = sums_of<Element>(world_.size(), all);
    expect_same_bits(output, std::vector<Element>(sums.begin() + begin, sums.begin() + begin + *own));
  }

  template <class Element>
  void check_all_reduce(std::int64_t count) {
    Tensor const whole = tensor_of(numbers_of<Element>(world_.rank(), count));
    world_.all_reduce(whole);
    expect_same_bits(whole, sums_of<Element>(world_.size(), count));
  }

  void check_messages_where_one_rank_lacks(bool KernelCopies::*right) {
    kernel_copies.*right = world_.rank() != world_.size() - 1;
    EXPECT_EQ(PeerMemory::attach(MPI_COMM_WORLD), nullptr);
    check_scatter<BFloat16>(counts_from(40000));
    check_all_reduce<BFloat16>(40000);
    EXPECT_EQ(kernel_copies.writes, 0);
  }
};

TEST_F(MemorySumsTest, RanksAreAddedInTheirOrder) {
  bool const direct = PeerMemory::attach(MPI_COMM_WORLD) != nullptr;
  for (std::int64_t const count : {40000, 150001}) {
    check_scatter<float>(counts_from(count));
    check_scatter<double>(counts_from(count));
    check_scatter<BFloat16>(counts_from(count));
    EXPECT_EQ(kernel_copies.writes, 0);  // only an all-reduce writes into other ranks' tensors
    check_all_reduce<BFloat16>(count);
    EXPECT_EQ(std::exchange(kernel_copies.writes, 0) > 0, direct);
    if (world_.size() <= 2) {  // of more, a sum of float32 is MPI's
      check_all_reduce<float>(count);
      EXPECT_EQ(std::exchange(kernel_copies.writes, 0) > 0, direct);
    }
  }
}

TEST_F(MemorySumsTest, SmallOnesAreMessages) {
  check_all_reduce<BFloat16>(10000);
  EXPECT_EQ(kernel_copies.writes, 0);
}

TEST_F(MemorySumsTest, ReturnWhenTheSlowestRankHasReadItsPart) {
  kernel_copies.delay = std::chrono::milliseconds(world_.rank() == 0 ? 10 : 0);
  check_scatter<BFloat16>(counts_from(40000));
  check_scatter<float>(counts_from(40000));
}

TEST_F(MemorySumsTest, AreMessagesWhereOneRankIsNotPermitted) {
  check_messages_where_one_rank_lacks(&KernelCopies::permits_probes);
}

// A filter of system calls may deny writes alone.
TEST_F(MemorySumsTest, AreMessagesWhereOneRankMayReadButNotWrite) {
  check_messages_where_one_rank_lacks(&KernelCopies::permits_writes);
}

TEST_F(MemorySumsTest, RefuseOtherCountsAndNameAnInaccessibleRank) {
  if (world_.size() == 1) {
    return;  // nobody to add
  }
  auto const peers = PeerMemory::attach(MPI_COMM_WORLD);
  if (!peers) {
    GTEST_SKIP() << "this kernel does not let a process read another's memory";
  }
  auto const error = [&](std::vector<std::int64_t> const& counts) {
    std::int64_t const all = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    Tensor const tensor = tensor_of(std::vector<float>(static_cast<std::size_t>(all), 1));
    return error_of([&] { peers->reduce({"sum", tensor, tensor, counts, ReduceOp::sum, false}); });
  };
  std::vector<std::int64_t> counts = counts_from(20000);
  counts.front() += world_.rank() == 1 ? 1 : 0;
  EXPECT_EQ(error(counts), "sum: rank 1 has other numbers or types of elements than rank 0");
  kernel_copies.permits_blocks = false;
  EXPECT_THAT(error(counts_from(20000)), StartsWith("sum: the memory of rank "));
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
