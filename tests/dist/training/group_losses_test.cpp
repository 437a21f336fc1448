#include <numeric>

#include "dist_fixture.hpp"
#include "kernel_test_support.hpp"
#include "layout_run.hpp"

namespace heddle {
namespace {

constexpr int steps = 2;
/// A group for each of the eight samples; no sample is of group 3.
std::vector<std::int32_t> const group_of{0, 1, 2, 0, 4, 1, 0, 0};
SampleGroups const groups{5, group_of};

using GroupLossesTest = DistTest;

std::vector<StepResult> results(LayoutRun& run, SampleGroups const& of) {
  std::vector<StepResult> found;
  for (int step = 0; step < steps; ++step) {
    found.push_back(run.step(step, of));
  }
  return found;
}

TEST_F(GroupLossesTest, AreThoseOfOneRankInEveryLayout) {
  std::vector<Variant> variants = all_variants();
  variants.push_back(other_variants().front());  // its rows have weights
  for (Variant const& variant : {variants.front(), variants.back()}) {
    LayoutRun alone(variant, Layout{}, Communicator::self());
    std::vector<StepResult> const expected = results(alone, groups);
    bool const weighted = variant.weighted;
    std::size_t number = 0;
    for (Layout const& layout : layouts_on(world_.size())) {
      if (world_.size() > 2 && (++number % 2 == 0) != weighted) {
        continue;  // many layouts: each trains one of the two
      }
      SCOPED_TRACE(describe(variant) + ", " + describe(layout));
      LayoutRun run(variant, layout, world_);
      std::vector<StepResult> const found = results(run, groups);
      bool const only_data = layout.size(MeshAxis::data) == world_.size();
      for (std::size_t step = 0; step < found.size(); ++step) {
        ASSERT_EQ(found[step].group_nll.size(), 5U);
        double const all = std::accumulate(found[step].group_nll.begin(), found[step].group_nll.end(), 0.0);
        EXPECT_NEAR(all / static_cast<double>(target_tokens(static_cast<int>(step))), found[step].nll, 1e-6);
        EXPECT_EQ(found[step].group_nll[3], 0);
        for (std::size_t group = 0; group < 5; ++group) {
          EXPECT_NEAR(found[step].group_nll[group], expected[step].group_nll[group], 1e-5);
          if (only_data && step == 0) {
            EXPECT_EQ(found[step].group_nll[group], expected[step].group_nll[group]) << "the order does not count";
          }
        }
      }
    }
  }
}

TEST_F(GroupLossesTest, ChangeNothingElse) {
  for (Layout const& layout : layouts_on(world_.size())) {
    SCOPED_TRACE(describe(layout));
    LayoutRun with(all_variants().front(), layout, world_);
    LayoutRun without(all_variants().front(), layout, world_);
    std::vector<StepResult> const found = results(with, groups);
    std::vector<StepResult> const expected = results(without, {});
    for (std::size_t step = 0; step < found.size(); ++step) {
      EXPECT_EQ(found[step].loss, expected[step].loss);
      EXPECT_EQ(found[step].gradient_norm, expected[step].gradient_norm);
      EXPECT_TRUE(expected[step].group_nll.empty());
    }
    EXPECT_EQ(values(with.engine().parameters().values()), values(without.engine().parameters().values()));
  }
}

TEST(RowLosses, AreSummedInWholeUnitsWhateverTheirOrder) {
  RowLosses losses(DType::float32);
  auto const sums = [&](std::vector<float> const& nll, std::vector<std::int32_t> const& samples) {
    losses.clear();
    Tensor const into = losses.add(tensor_of(samples));
    std::vector<double> both;
    for (float const loss : nll) {
      both.insert(both.end(), {100.0, static_cast<double>(loss)});
    }
    copy_from_doubles(into, both);
    return losses.sums(2, std::vector<std::int32_t>{1, 0});
  };
  EXPECT_EQ(sums({0.1F, 1e4F, 0.7F, 3e-5F}, {0, 1, 0, 0})[1], sums({3e-5F, 0.7F, 0.1F}, {0, 0, 0})[1]);
  EXPECT_EQ(sums({2}, {1})[0] * RowLosses::unit, 2);
  EXPECT_EQ(sums({}, {})[0], 0);
}

}  // namespace
}  // namespace heddle
