#include <atomic>
#include <chrono>
#include <heddle/core/base/host_name.hpp>
#include <heddle/core/parallel/backoff.hpp>
#include <heddle/dist/watch/watch.hpp>
#include <thread>

#include "dist_fixture.hpp"

namespace heddle {
namespace {

constexpr double limit = 0.5;

/// Watches the world; a hang is recorded instead of ending the process.
class WatchTest : public DistTest {
 protected:
  /// Waits for the report, as a rank that hangs; "" if none comes.
  std::string wait_for_report() {
    auto const until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!reported_.load() && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return reported_.load() ? report_ : "";
  }

  bool last() const { return world_.rank() + 1 == world_.size(); }
  std::string last_rank() const { return "rank " + std::to_string(world_.size() - 1) + " on " + host_name(); }

  std::string report_;
  std::atomic<bool> reported_ = false;
  Watch watch_{world_, {.hang_seconds = limit, .on_hang = [this](std::string const& report, bool /*prints*/) {
                          report_ = report;
                          reported_.store(true);
                        }}};
  Communicator watched_{watch_.watched(session_.world().backend())};
};

TEST_F(WatchTest, ARankThatDoesNotComeIsNamedWithItsPhaseAndWhereTheOthersWait) {
  watch_.phase("saving step", 7);
  watched_.barrier();
  if (last()) {
    std::string const report = wait_for_report();
    if (world_.size() == 1) {
      expect_contains(report, last_rank() + ": saving step 7, last in world.barrier 1; for ");
    } else {
      expect_contains(report, {last_rank() + ": saving step 7, last in world.barrier 1; missing in "
                                             "world.barrier 2; for ",
                               world_.size() == 2 ? "rank 0 on " : "ranks 0, ",
                               ": waiting in world.barrier 2 while saving step 7; for "});
    }
  }
  watched_.barrier();
  EXPECT_EQ(wait_for_report().empty(), false) << "every rank has the report";
}

TEST_F(WatchTest, AStartedVerbOfAGroupIsWatchedWhereItIsWaitedFor) {
  int const color = last() || world_.rank() == 0 ? 1 : 0;
  Communicator const group = watched_.split(color, world_.rank(), "pipeline × data × context × tensor");
  if (world_.size() > 1 && last()) {
    expect_contains(
        wait_for_report(),
        {", last in world.split 1; missing in ", "pipeline × data × context × tensor.start_all_reduce 1; for ",
         "rank 0 on " + host_name() +
             ": waiting in pipeline × data × context × tensor.start_all_reduce 1 (10 elements)"});
  }
  if (color == 1) {
    Tensor const ones = tensor_of(std::vector<float>(10, 1));
    Transfer sum = group.start_all_reduce(ones);
    sum.wait();
    EXPECT_EQ(to_host<float>(ones).front(), group.size());
  }
  watched_.barrier();
}

// Large sums read the other ranks' memory where the kernel permits it, and wait before they do.
TEST_F(WatchTest, ALargeSumIsNamedAsOneOfMessages) {
  Tensor const ones = tensor_of(std::vector<BFloat16>(40000, BFloat16(1)));
  watched_.all_reduce(ones);
  if (world_.size() > 1 && last()) {
    expect_contains(wait_for_report(), {", last in world.all_reduce 1; missing in world.all_reduce 2; for ",
                                        ": waiting in world.all_reduce 2 (40,000 elements)"});
  }
  watched_.all_reduce(ones);
  auto const size = static_cast<float>(world_.size());
  EXPECT_EQ(static_cast<float>(to_host<BFloat16>(ones).back()), size * size);
}

TEST_F(WatchTest, ARankThatRestsIsWaiting) {
  watched_.barrier();
  if (world_.size() == 1) {
    expect_contains(wait_for_report(), "last in world.barrier 1; for ");
    return;
  }
  if (last()) {
    expect_contains(wait_for_report(),
                    {last_rank() + ": starting, last in world.barrier 1; missing in world.start_all_gather 2; for ",
                     ": waiting in world.start_all_gather 2 (" + std::to_string(world_.size()) +
                         " elements) while starting; for "});
  }
  Tensor const mine = tensor_of(std::vector<float>{1});
  Tensor const all = Tensor::allocate(DType::float32, {world_.size()});
  Transfer gather = watched_.start_all_gather(mine, all);
  wait_with_backoff(gather);
  EXPECT_EQ(to_host<float>(all).back(), 1);
  watched_.barrier();
}

TEST_F(WatchTest, WhoComputesBetweenPollsDoesNotWait) {
  if (world_.size() == 1) {
    expect_contains(wait_for_report(), "in no collective yet");
    return;
  }
  Tensor const mine = tensor_of(std::vector<float>{1});
  Tensor const all = Tensor::allocate(DType::float32, {world_.size()});
  if (last()) {
    expect_contains(wait_for_report(), "rank 0 on " + host_name() + ": starting, last in world.start_all_gather 1; ");
  }
  Transfer gather = watched_.start_all_gather(mine, all);
  if (world_.rank() == 0) {
    gather.progress();
    wait_for_report();
  }
  gather.wait();
  watched_.barrier();
}

TEST_F(WatchTest, AMessageThatIsNotSentIsNamedWithBothRanks) {
  if (world_.size() == 1) {
    expect_contains(wait_for_report(), "in no collective yet");
    return;
  }
  Tensor const number = tensor_of(std::vector<float>{3});
  if (last()) {
    expect_contains(wait_for_report(), {"in no collective yet; missing in ", "world.receive 1; for ",
                                        ": waiting in world.receive 1 with rank " + std::to_string(world_.size() - 1)});
    watched_.send(number, 0);
  } else if (world_.rank() == 0) {
    watched_.receive(number, world_.size() - 1);
  }
  watched_.barrier();
}

TEST_F(WatchTest, RanksThatWaitForASlowOneDoNotHang) {
  if (last()) {
    for (int beat = 0; beat < 60; ++beat) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      watch_.heartbeat();
    }
  }
  watched_.barrier();
  EXPECT_FALSE(reported_.load()) << report_;
}

TEST(WatchOffTest, DecoratesNothing) {
  MpiSession const session;
  Watch watch(session.world(), {.hang_seconds = 0});
  EXPECT_EQ(watch.watched(session.world().backend()), session.world().backend());
  watch.phase("training step", 1);
}

class CheckedTest : public DistTest {
 protected:
  Communicator checked_{checked(session_.world().backend())};
};

TEST_F(CheckedTest, EqualCallsPass) {
  Communicator const group = checked_.split(world_.rank() % 2, world_.rank(), "half");
  for (Communicator const& ranks : {checked_, group}) {
    Tensor const number = tensor_of(std::vector<float>{1});
    ranks.all_reduce(number);
    EXPECT_EQ(to_host<float>(number).front(), ranks.size());
    ranks.broadcast(number, 0);
    Tensor const all = Tensor::allocate(DType::float32, {ranks.size()});
    ranks.start_all_gather(number, all).wait();
    std::vector<std::int64_t> const rows(static_cast<std::size_t>(ranks.size()), 1);
    ranks.all_to_all_rows(all, rows, Tensor::allocate(DType::float32, {ranks.size()}), rows);
    ranks.barrier();
  }
}

TEST_F(CheckedTest, AnotherVerbCountReductionOrRootIsNamedOnEveryRank) {
  if (world_.size() == 1) {
    EXPECT_NO_THROW(checked_.barrier());
    return;
  }
  bool const odd = world_.rank() + 1 == world_.size();
  std::string const named = "rank " + std::to_string(world_.size() - 1) + " calls ";
  Tensor const one = tensor_of(std::vector<float>{1});
  Tensor const two = tensor_of(std::vector<float>{1, 2});
  expect_error([&] { odd ? checked_.barrier() : checked_.all_reduce(one); },
               {"a world group", named + "barrier as its collective 1",
                "all_reduce as its collective 1, 1 elements of float32, sum"});
  expect_error([&] { checked_.all_reduce(odd ? two : one); }, named + "all_reduce as its collective 2, 2");
  expect_error([&] { checked_.all_reduce(one, odd ? ReduceOp::max : ReduceOp::sum); }, "1 elements of float32, max");
  expect_error([&] { checked_.broadcast(one, odd ? 1 : 0); }, "from rank 1");
  Tensor const narrow = tensor_of(std::vector<std::int32_t>{1});
  expect_error([&] { checked_.all_reduce(odd ? narrow : one); }, "int32");
  EXPECT_NO_THROW(checked_.barrier()) << "a named mismatch leaves the group usable";
}

TEST_F(CheckedTest, RowCountsThatDoNotAgreeAreNamedOnEveryRank) {
  auto const ranks = static_cast<std::size_t>(world_.size());
  auto const size = static_cast<std::int64_t>(ranks);
  int const last = world_.size() - 1;
  Tensor const input = Tensor::allocate(DType::float32, {2 * size, 3});
  std::vector<std::int64_t> const rows(ranks, 2);
  Tensor const output = Tensor::allocate(DType::float32, {2 * size, 3});
  EXPECT_NO_THROW(checked_.all_to_all_rows(input, rows, output, rows));
  if (last == 0) {
    return;
  }
  // The last rank expects a row less from rank 0.
  std::vector<std::int64_t> fewer = rows;
  fewer.front() = 1;
  bool const odd = world_.rank() == last;
  Tensor const smaller = Tensor::allocate(DType::float32, {2 * size - 1, 3});
  expect_error([&] { checked_.all_to_all_rows(input, rows, odd ? smaller : output, odd ? fewer : rows); },
               fmt::format("all_to_all_rows as its collective 2: rank 0 sends 6 elements to rank {}, which "
                           "expects 3",
                           last));
  // The other collectives of rows: the last rank has another list.
  std::vector<std::int64_t> other = rows;
  other.front() = 3;
  other.back() = 1;
  Tensor const two = Tensor::allocate(DType::float32, {2, 3});
  Tensor const own = Tensor::allocate(DType::float32, {odd ? 1 : 2, 3});
  expect_error([&] { checked_.all_gather_rows(own, output, odd ? other : rows); }, "rows with the digest");
  expect_error([&] { checked_.reduce_scatter_rows(input, odd ? own : two, odd ? other : rows); },
               "rows with the digest");
  EXPECT_NO_THROW(checked_.barrier()) << "a named mismatch leaves the group usable";
}

}  // namespace
}  // namespace heddle
