#include <algorithm>

#include "dist_fixture.hpp"
#include "layout_run.hpp"

namespace heddle {
namespace {

// In bfloat16 sums that are taken over other parts are rounded at other places, each time by up to 0.4 %: so near do a
// step's losses on any mesh stay to those of one rank.
constexpr double tolerance = 0.02;
constexpr int steps = 6;

std::vector<double> losses(Layout const& layout, Communicator const& world) {
  LayoutRun run({}, layout, world, DType::bfloat16);
  std::vector<double> result;
  for (int step = 0; step < steps; ++step) {
    result.push_back(run.accumulate(step));
    run.engine().update(run.rate(), step + 1);
  }
  return result;
}

class MixedPrecisionTest : public DistTest {};

TEST_F(MixedPrecisionTest, LayoutsTrainAsOneRank) {
  auto const expected = losses({}, Communicator::self());
  int compared = 0;
  for (Layout const& layout : layouts_on(world_.size())) {
    auto const& [pipeline, data, context, tensor] = layout.sizes;
    bool const everything_on =
        layout.sequence_parallel == (tensor > 1) && layout.shard_optimizer == (data * context > 1);
    if (std::max({pipeline, data, context, tensor}) > 2 || !everything_on) {
      continue;
    }
    ++compared;
    SCOPED_TRACE(describe(layout));
    auto const actual = losses(layout, world_);
    for (int step = 0; step < steps; ++step) {
      auto const index = static_cast<std::size_t>(step);
      EXPECT_NEAR(actual[index], expected[index], tolerance * expected[index]) << "step " << step;
    }
  }
  EXPECT_GT(compared, 0);
}

}  // namespace
}  // namespace heddle
