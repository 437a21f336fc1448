#include <algorithm>
#include <heddle/dist/training/training_engine.hpp>
#include <limits>

#include "synthetic_model.hpp"

namespace heddle {
namespace {

/// A step of the model; with `poisoned` the last rank computes one gradient that is not a number.
StepResult step(SyntheticModel& model, std::int64_t number, bool poisoned,
                GradientsAfter after = GradientsAfter::kept) {
  model.optimizer.zero_gradients();
  copy_from_host(model.loss_sums, std::vector<double>(1).data());
  model.run_micro_batch(number * model.parallel.data.size() + model.parallel.data.rank());
  if (poisoned && model.parallel.world.rank() + 1 == model.parallel.world.size()) {
    Tensor const& gradient = model.parameters.all().front().gradient;
    auto values = to_host<float>(gradient);
    values.back() = std::numeric_limits<float>::quiet_NaN();
    copy_from_host(gradient, values.data());
  }
  model.optimizer.reducer().reduce(model.loss_sums);
  return {model.loss(), model.optimizer.update(0.01, number + 1, after)};
}

/// Everything that a checkpoint would hold, in one list.
std::vector<float> whole_state(SyntheticModel& model) {
  std::vector<float> state;
  for (Tensor const& tensor : {model.parameters.values(), model.optimizer.local().state().at("adam.first_moment"),
                               model.optimizer.local().state().at("adam.second_moment")}) {
    auto const values = to_host<float>(tensor);
    state.insert(state.end(), values.begin(), values.end());
  }
  return state;
}

using FiniteStepsTest = DistTest;

TEST_F(FiniteStepsTest, AFaultThatDoesNotRepeatLeavesTheUndisturbedRun) {
  for (auto const& layout : layouts_of(world_.size())) {
    for (bool const shard : {false, true}) {
      ParallelState const state = state_of(layout);
      SyntheticModel undisturbed(state, {.shard = shard});
      SyntheticModel disturbed(state, {.shard = shard});
      FiniteSteps steps;
      for (std::int64_t number = 0; number < 3; ++number) {
        step(undisturbed, number, false);
        int runs = 0;
        auto const outcome = steps.run([&] { return step(disturbed, number, number == 1 && ++runs == 1); });
        EXPECT_EQ(outcome.repeated, number == 1);
        EXPECT_FALSE(outcome.skipped);
      }
      EXPECT_EQ(whole_state(disturbed), whole_state(undisturbed));
    }
  }
}

// Steps whose gradients nobody reads, among others, a repeated one and one that is skipped.
TEST_F(FiniteStepsTest, GradientsThatAnUpdateSetToZeroAreTheUndisturbedRun) {
  for (auto const& layout : layouts_of(world_.size())) {
    for (bool const shard : {false, true}) {
      ParallelState const state = state_of(layout);
      SyntheticModel kept(state, {.shard = shard});
      SyntheticModel zero(state, {.shard = shard});
      for (std::int64_t number = 0; number < 5; ++number) {
        step(kept, number, number == 2);
        step(zero, number, number == 2, number == 3 ? GradientsAfter::kept : GradientsAfter::zero);
        auto const gradients = to_host<float>(zero.parameters.gradients());
        bool const all_zero = std::ranges::all_of(gradients, [](float gradient) { return gradient == 0; });
        bool const left = number == 2 || number == 3 || zero.optimizer.sharded();
        EXPECT_EQ(all_zero, !left && zero.parameters.gradients().space() == MemorySpace::host) << number;
      }
      EXPECT_EQ(whole_state(zero), whole_state(kept));
    }
  }
}

TEST_F(FiniteStepsTest, AFaultThatRepeatsChangesNothingAndEndsTheRunAtTheThirdInARow) {
  for (bool const shard : {false, true}) {
    SyntheticModel model(state_of({1, world_.size(), 1, 1}), {.shard = shard});
    FiniteSteps steps;
    step(model, 0, false);
    auto const before = whole_state(model);
    auto const skip = [&] { return steps.run([&] { return step(model, 1, true); }).skipped; };
    EXPECT_TRUE(skip());
    EXPECT_TRUE(skip());
    EXPECT_FALSE(steps.too_many_skipped());
    EXPECT_EQ(whole_state(model), before);
    EXPECT_FALSE(steps.run([&] { return step(model, 1, false); }).repeated);
    for (int skipped = 1; skipped <= FiniteSteps::max_skipped; ++skipped) {
      EXPECT_TRUE(skip());
      EXPECT_EQ(steps.too_many_skipped(), skipped == FiniteSteps::max_skipped);
    }
  }
}

}  // namespace
}  // namespace heddle
