#include <chrono>
#include <cstdlib>
#include <heddle/dist/trace/step_times.hpp>
#include <heddle/dist/trace/trace_file.hpp>
#include <thread>

#include "dist_fixture.hpp"

namespace heddle {
namespace {

void sleep_for(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

class StepTimesTest : public DistTest {
 protected:
  bool last() const { return world_.rank() + 1 == world_.size(); }

  StepTrace trace_{false};
  StepTimes times_{&trace_};
  Communicator measured_{times_.measured(session_.world().backend())};
};

TEST_F(StepTimesTest, WaitingForALateRankIsCommunication) {
  Communicator const group = measured_.split(0, world_.rank(), "all");
  group.barrier();
  EXPECT_EQ(times_.seconds().communicating, 0) << "outside of steps nothing counts";
  {
    WorkScope const step(&times_, {WorkKind::step, "step 1"});
    if (last()) {
      sleep_for(0.3);
    }
    group.barrier();
  }
  auto const seconds = times_.seconds();
  EXPECT_EQ(seconds.steps, 1);
  EXPECT_GE(seconds.all, 0.29);
  if (last()) {
    EXPECT_GE(seconds.computing(), 0.29);
    EXPECT_LT(seconds.communicating, 0.2);
  } else {
    EXPECT_GE(seconds.communicating, 0.15);
    EXPECT_NEAR(times_.by_collective().at("all.barrier"), seconds.communicating, 1e-9);
  }
}

TEST_F(StepTimesTest, CollectivesInsideAWaitCountOnce) {
  {
    WorkScope const step(&times_, {WorkKind::step, "step 1"});
    Tensor const numbers = tensor_of(std::vector<float>(1000, 1));
    Transfer sum = measured_.start_all_reduce(numbers);
    WorkScope const waiting(&times_, {WorkKind::waiting, "world.all_reduce"});
    for (int looks = 0; !sum.progress() || looks < 6; ++looks) {
      sleep_for(0.01);
    }
  }
  auto const by_collective = times_.by_collective();
  double const sum = std::accumulate(by_collective.begin(), by_collective.end(), 0.0,
                                     [](double total, auto const& entry) { return total + entry.second; });
  EXPECT_NEAR(sum, times_.seconds().communicating, 1e-9);
  EXPECT_GE(by_collective.at("world.all_reduce"), 0.05);
  EXPECT_LE(times_.seconds().communicating, times_.seconds().all);
  EXPECT_EQ(by_collective.size(), 1U);
}

TEST_F(StepTimesTest, ReadingIsCountedWithoutItsMessages) {
  {
    WorkScope const step(&times_, {WorkKind::step, "step 1"});
    WorkScope const data(&times_, {WorkKind::data, "reading"});
    sleep_for(0.05);
    if (last()) {
      sleep_for(0.2);
    }
    measured_.barrier();
  }
  EXPECT_GE(times_.seconds().data, 0.049);
  EXPECT_LT(times_.seconds().data, last() ? 0.4 : 0.15);
}

TEST_F(StepTimesTest, ClocksOfOneMachineAreEqual) {
  EXPECT_EQ(clock_offset(measured_), 0);
}

TEST_F(StepTimesTest, ClocksOfSeveralMachinesAreAligned) {
  constexpr std::int64_t second = 1'000'000'000;
  std::int64_t const ahead = world_.rank() * second;
  std::int64_t const found = clock_offset(measured_, [&] { return StepTrace::now() + ahead; });
  EXPECT_LT(std::abs(found - ahead), second / 5) << "nanoseconds";
}

TEST_F(StepTimesTest, TheTraceHasEveryRanksEvents) {
  trace_.record(true);
  {
    WorkScope const step(&times_, {WorkKind::step, "step 12"});
    WorkScope const layer(&trace_, {WorkKind::layer, "a \"quoted\" layer"});
    measured_.barrier();
    if (world_.size() > 1) {
      Tensor const numbers = tensor_of(std::vector<float>(10, 1));
      Transfer const sent = measured_.start_send(numbers, (world_.rank() + 1) % world_.size());
      measured_.receive(numbers, (world_.rank() + world_.size() - 1) % world_.size());
    }
  }
  trace_.record(false);
  std::ostringstream output;
  write_trace(measured_, trace_, 0, world_.rank() == 0 ? &output : nullptr);
  if (world_.rank() != 0) {
    return;
  }
  std::string const text = output.str();
  for (int rank = 0; rank < world_.size(); ++rank) {
    std::string const place = "\"pid\":" + std::to_string(rank) + ",\"tid\":0,";
    expect_contains(text, {"\"cat\":\"step\",\"name\":\"step 12\"," + place,
                           "\"cat\":\"layer\",\"name\":\"a \\\"quoted\\\" layer\"," + place,
                           "\"cat\":\"communication\",\"name\":\"world.barrier\"," + place});
    if (world_.size() > 1) {
      expect_contains(text, "\"bytes\":40,\"peer\":" + std::to_string((rank + 1) % world_.size()));
    }
  }
  expect_lacks(text, "\"pid\":" + std::to_string(world_.size()));
}

TEST_F(StepTimesTest, AnOutputThatFailsFailsOnEveryRank) {
  std::ostringstream output;
  output.setstate(std::ios::badbit);
  expect_error([&] { write_trace(measured_, trace_, 0, world_.rank() == 0 ? &output : nullptr); },
               "the trace cannot be written");
}

StepTimes::Seconds rank(double all, double communicating) {
  return {.steps = 1, .all = all, .first = all, .communicating = communicating};
}

TEST(EfficiencyTest, ParallelEfficiencyIsTheProductOfItsParts) {
  // Computing: 8, 6, 4, 6 of 10 seconds.
  Efficiency const found = efficiency_of({rank(10, 2), rank(10, 4), rank(10, 6), rank(10, 4)});
  EXPECT_DOUBLE_EQ(found.load_balance, 6.0 / 8);
  EXPECT_DOUBLE_EQ(found.communication, 0.8);
  EXPECT_DOUBLE_EQ(found.parallel, 0.6);
  EXPECT_DOUBLE_EQ(found.parallel, found.load_balance * found.communication);
  EXPECT_EQ(found.slowest, 0);
  EXPECT_DOUBLE_EQ(found.waited_less, 14.0 / 3 - 2);
}

TEST(EfficiencyTest, OneRankThatDoesNotCommunicateIsPerfect) {
  Efficiency const found = efficiency_of({rank(10, 0)});
  EXPECT_EQ(found.load_balance, 1);
  EXPECT_EQ(found.parallel, 1);
  EXPECT_EQ(found.waited_less, 0);
}

}  // namespace
}  // namespace heddle
