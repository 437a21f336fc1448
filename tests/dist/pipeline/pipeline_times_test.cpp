#include <gmock/gmock.h>

#include <heddle/dist/pipeline/times.hpp>

#include "dist_fixture.hpp"

namespace heddle {
namespace {

using testing::DoubleEq;
using testing::HasSubstr;
using PipelineTimesTest = DistTest;

/// Events of a stage in a step in which a forward takes one second and a backward two, and nothing else takes time.
std::vector<PipelineEvent> ideal_events(int stage, int stages, std::int64_t micro_batches) {
  std::vector<PipelineEvent> events;
  // Every rank's clock has another origin.
  double clock = 1000.0 * (stage + 1);
  double const began = clock;
  std::int64_t backwards = 0;
  for (PipelineAction const& action : training_actions({stage, stages, 1}, micro_batches)) {
    bool const forward = action.pass == Pass::forward;
    // Backward i of a stage ends two seconds per earlier stage before the first stage's.
    double const earliest = forward ? static_cast<double>(stage) + static_cast<double>(action.micro_batch)
                                    : 3.0 * static_cast<double>(backwards++) + stages + 2.0 * (stages - 1 - stage);
    double const start = std::max(clock, began + earliest);
    double const seconds = forward ? 1 : 2;
    events.push_back({action, clock, start + seconds, start - clock});
    clock = start + seconds;
  }
  return events;
}

TEST_F(PipelineTimesTest, IdleTimeIsTheFormulasWherePassesTakeTheSameTime) {
  for (std::int64_t const micro_batches : {1, 4, 13}) {
    PipelineTimes const times = gather_times(world_, ideal_events(world_.rank(), world_.size(), micro_batches));
    ASSERT_EQ(times.stages(), world_.size());
    auto const count = static_cast<double>(micro_batches);
    auto const behind = static_cast<double>(world_.size() - 1);
    EXPECT_THAT(times.total, DoubleEq(3 * (count + behind)));
    for (int stage = 0; stage < world_.size(); ++stage) {
      EXPECT_NEAR(times.busy[static_cast<std::size_t>(stage)], 3 * count, 1e-9);
      EXPECT_NEAR(times.idle(stage), 3 * behind, 1e-9);
    }
    EXPECT_NEAR(times.bubble(), behind / (count + behind), 1e-12);
    EXPECT_NEAR(times.ideal_bubble(), times.bubble(), 1e-12);
    EXPECT_EQ(times.micro_batches, micro_batches);
  }
}

TEST(PipelineTimes, StepsAddUpAndPrint) {
  PipelineTimes step{.total = 4, .busy = {3, 2}, .waited = {0.5, 1}, .micro_batches = 3, .parts = 1};
  PipelineTimes sum;
  sum.add(step);
  sum.add(step);
  EXPECT_EQ(sum.total, 8);
  EXPECT_EQ(sum.busy, (std::vector<double>{6, 4}));
  EXPECT_EQ(sum.waited, (std::vector<double>{1, 2}));
  EXPECT_EQ(sum.bubble(), 1 - 10.0 / 16);
  EXPECT_EQ(sum.ideal_bubble(), 0.25);
  EXPECT_THAT(sum.to_string(), HasSubstr("bubble 0.3750 measured, 0.2500 ideal: 2 stages, 3 micro-batches, 1 part"));
  step.parts = 2;
  EXPECT_NEAR(step.ideal_bubble(), 1.0 / 7, 1e-15);
}

}  // namespace
}  // namespace heddle
