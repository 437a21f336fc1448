#include <heddle/dist/planning/pipeline_simulation.hpp>

#include "test.hpp"

namespace heddle {
namespace {

std::vector<StageTimes> equal_stages(std::size_t stages, std::size_t parts, double forward, double backward,
                                     double message = 0) {
  StageTimes const stage{std::vector<double>(parts, forward), std::vector<double>(parts, backward), message};
  return std::vector<StageTimes>(stages, stage);
}

TEST(PipelineSimulation, OneStageWorksWithoutPause) {
  SimulatedPipeline const result = simulate_pipeline(equal_stages(1, 1, 1, 2, 100), 5);
  EXPECT_DOUBLE_EQ(result.seconds, 15);
  EXPECT_DOUBLE_EQ(result.bubble, 0);
}

// Narayanan et al. 2021, §2.2: (m + p - 1) (f + b), with the bubble (p - 1) / (m + p - 1).
TEST(PipelineSimulation, EqualStagesTakeTheTimeOfTheFormula) {
  for (int const stages : {2, 3, 8}) {
    for (int const micro_batches : {8, 9, 30}) {
      SimulatedPipeline const result =
          simulate_pipeline(equal_stages(static_cast<std::size_t>(stages), 1, 1, 2), micro_batches);
      EXPECT_DOUBLE_EQ(result.seconds, 3.0 * (micro_batches + stages - 1));
      EXPECT_NEAR(result.bubble, (stages - 1.0) / (micro_batches + stages - 1), 1e-12);
      EXPECT_THAT(result.busy, Each(DoubleNear(3.0 * micro_batches, 1e-9)));
    }
  }
}

// The same paper: with v parts of a stage the bubble is 1 / v of that.
TEST(PipelineSimulation, InterleavingHalvesTheBubble) {
  SimulatedPipeline const result = simulate_pipeline(equal_stages(4, 2, 0.5, 1), 8);
  EXPECT_DOUBLE_EQ(result.seconds, 1.5 * (2 * 8 + 4 - 1));
}

// Qi et al. 2023, ZB-H1.
TEST(PipelineSimulation, SplitBackwardPassesHideTwoThirdsOfTheBubble) {
  for (std::size_t const parts : {1, 2}) {
    auto stages = equal_stages(4, parts, 1, 1);
    for (StageTimes& stage : stages) {
      stage.weights.assign(parts, 1);
    }
    EXPECT_DOUBLE_EQ(simulate_pipeline(stages, 8).seconds, 3.0 * static_cast<double>(parts) * 8 + 4 - 1);
  }
}

TEST(PipelineSimulation, MessagesAndFirstPassesTakeTheirTime) {
  // Forward, message, forward and backward, message, backward.
  EXPECT_DOUBLE_EQ(simulate_pipeline(equal_stages(2, 1, 1, 2, 0.25), 1).seconds, 6.5);
  EXPECT_DOUBLE_EQ(simulate_pipeline(equal_stages(2, 1, 1, 2), 1, {0.5, 0.125}).seconds, 6.625);
}

TEST(PipelineSimulation, TheSlowestStageDecides) {
  auto stages = equal_stages(3, 1, 1, 2);
  stages[1].forward = {2};
  stages[1].backward = {4};
  // It begins at 1, waits from 5 to 6 for the first gradient, and its last one has to pass the first stage.
  EXPECT_DOUBLE_EQ(simulate_pipeline(stages, 20).seconds, 1 + 6.0 * 20 + 1 + 2);
}

}  // namespace
}  // namespace heddle
