#include <sys/resource.h>

#include <barrier>
#include <chrono>
#include <cstring>
#include <fstream>
#include <heddle/core/base/seconds.hpp>
#include <heddle/dist/watch/watch.hpp>
#include <sstream>
#include <thread>

#include "torture.hpp"

namespace heddle {
namespace {

/// A group of threads of this process: the blocking collectives that the watch uses.
class ThreadGroup {
 public:
  explicit ThreadGroup(int size) : calls_(static_cast<std::size_t>(size)), barrier_(size) {}

  std::shared_ptr<CommunicatorBackend> backend(int rank) { return std::make_shared<Backend>(*this, rank); }

 private:
  class Backend final : public CommunicatorBackend {
   public:
    Backend(ThreadGroup& group, int rank) : group_(group), rank_(rank) {}

    int rank() const override { return rank_; }
    int size() const override { return static_cast<int>(group_.calls_.size()); }
    std::unique_ptr<TransferBackend> run(CollectiveCall const& call) override {
      group_.run(rank_, call);
      return nullptr;
    }
    std::shared_ptr<CommunicatorBackend> split(int, int, std::string const&) override {
      throw Error("threads are not split: {}", rank_);
    }

   private:
    ThreadGroup& group_;
    int rank_;
  };

  void run(int rank, CollectiveCall const& call) {
    calls_[static_cast<std::size_t>(rank)] = &call;
    barrier_.arrive_and_wait();
    std::vector<std::byte> result;
    switch (call.collective) {
      case CollectiveOp::all_gather:
        for (CollectiveCall const* each : calls_) {
          append(result, each->input);
        }
        break;
      case CollectiveOp::broadcast:
        append(result, calls_[static_cast<std::size_t>(call.peer)]->input);
        break;
      case CollectiveOp::all_reduce: {
        std::int32_t most = 0;  // of one int32 that is not negative, as of any_of
        for (CollectiveCall const* each : calls_) {
          most = std::max(most, *static_cast<std::int32_t const*>(each->input.raw()));
        }
        result.resize(sizeof most);
        std::memcpy(result.data(), &most, sizeof most);
        break;
      }
      default:
        break;
    }
    barrier_.arrive_and_wait();
    std::memcpy(call.output.raw(), result.data(), result.size());
    barrier_.arrive_and_wait();  // until then the others need their calls
  }
  static void append(std::vector<std::byte>& bytes, Tensor const& tensor) {
    auto const* const begin = static_cast<std::byte const*>(tensor.raw());
    bytes.insert(bytes.end(), begin, begin + tensor.bytes());
  }

  std::vector<CollectiveCall const*> calls_;
  std::barrier<> barrier_;
};

/// Datagrams that this network namespace has received so far, and those that it lost because a socket was full.
struct Datagrams {
  std::int64_t received = 0;
  std::int64_t lost = 0;
};
Datagrams datagrams() {
  std::ifstream file("/proc/net/snmp");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    std::int64_t no_ports = 0;
    std::int64_t errors = 0;
    std::int64_t sent = 0;
    Datagrams found;
    if (words >> name && name == "Udp:" && words >> found.received >> no_ports >> errors >> sent >> found.lost) {
      return found;
    }
  }
  return {};
}

/// Ranks of a run of which one does not come to a collective, each with its watch.
class ManyWatches {
 public:
  ManyWatches(int ranks, int missing) : group_(ranks), ranks_(ranks), missing_(missing) {}

  void run() {
    std::vector<std::jthread> threads;
    before_ = datagrams();
    for (int rank = 0; rank < ranks_; ++rank) {
      threads.emplace_back([this, rank] { live(rank); });
    }
  }

  std::string report;                        ///< the first
  std::atomic<int> reported = 0;             ///< ranks that got it
  std::atomic<int> printed = 0;              ///< ranks that would print it
  std::chrono::duration<double> start_time;  ///< until all watches had started
  std::chrono::duration<double> hang_time;   ///< until the first rank had the report
  Datagrams at_start;
  Datagrams at_hang;

  static constexpr double hang_seconds = 5;

 private:
  void live(int rank) {
    auto const on_hang = [this](std::string const& text, bool prints) {
      if (reported.fetch_add(1) == 0) {
        hang_time = SteadyClock::now() - waiting_since_;
        report = text;
      }
      printed.fetch_add(prints ? 1 : 0);
    };
    Communicator const world(group_.backend(rank));
    Watch watch(world, {.hang_seconds = hang_seconds, .on_hang = on_hang});
    Communicator const watched(watch.watched(group_.backend(rank)));
    watched.barrier();
    if (rank == missing_) {
      auto const now = datagrams();
      at_start = {now.received - before_.received, now.lost - before_.lost};
      waiting_since_ = SteadyClock::now();
      start_time = waiting_since_ - began_;
    }
    watch.phase("training step", 7);
    if (rank == missing_) {
      auto const until = SteadyClock::now() + std::chrono::seconds(60);
      while (reported.load() < ranks_ && SteadyClock::now() < until) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
      auto const now = datagrams();
      at_hang = {now.received - before_.received - at_start.received, now.lost - before_.lost - at_start.lost};
    }
    watched.barrier();
  }

  ThreadGroup group_;
  int ranks_;
  int missing_;
  Datagrams before_;
  SteadyClock::time_point began_ = SteadyClock::now();
  SteadyClock::time_point waiting_since_;
};

TEST(ManyWatches, AHangOfThousandRanksIsNamedByDatagramsInProportionToTheirNumber) {
  auto const ranks = static_cast<int>(torture_count(256, 1024));
  rlimit files{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  auto const needed = static_cast<rlim_t>(2 * ranks + 128);  // a socket and an eventfd for each rank
  if (files.rlim_max < needed) {
    GTEST_SKIP() << "a process may have " << files.rlim_max << " open files here, and " << needed << " are needed";
  }
  files.rlim_cur = std::max(files.rlim_cur, needed);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
  ManyWatches run(ranks, ranks - 24);
  run.run();
  std::string const name = std::to_string(ranks - 24);
  expect_contains(run.report,
                  {"rank " + name + " on ", ": training step 7, last in world.barrier 1; missing in world.barrier 2",
                   std::to_string(ranks - 1) + " in all", ": waiting in world.barrier 2 while training step 7"});
  EXPECT_EQ(run.reported.load(), ranks);
  EXPECT_EQ(run.printed.load(), 1) << "they are on one host";
  // Each rank asks 32 others at the start, at first by each of their addresses, and one rank asks all some twenty
  // times.
  EXPECT_LT(run.at_start.received, 512 * ranks);
  EXPECT_LT(run.at_hang.received, 128 * ranks);
  print_figures(
      fmt::format("{} ranks as threads: watches started in {:.1f} s with {} datagrams ({} lost); a hang of {} s named "
                  "after {:.1f} s with {} ({} lost)",
                  ranks, run.start_time.count(), run.at_start.received, run.at_start.lost, run.hang_seconds,
                  run.hang_time.count(), run.at_hang.received, run.at_hang.lost));
}

}  // namespace
}  // namespace heddle
