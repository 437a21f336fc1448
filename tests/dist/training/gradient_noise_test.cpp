#include "dist_fixture.hpp"
#include "kernel_test_support.hpp"
#include "layout_run.hpp"

namespace heddle {
namespace {

using GradientNoiseTest = DistTest;

double square_of_gradients(LayoutRun& run) {
  double sum = 0;
  for (Parameter const& parameter : run.engine().parameters().all()) {
    for (double const element : values(parameter.gradient)) {
      sum += element * element;
    }
  }
  return sum;
}

/// Against the definition: one rank computes the gradient of each data rank's micro-batches by itself.
TEST_F(GradientNoiseTest, IsThatOfThePartsOfABatch) {
  Variant const variant{NormPlacement::pre, true, "[train]\nnoise_scale = true"};
  for (bool const shard : {false, true}) {
    int const ranks = world_.size();
    LayoutRun run(variant, {.shape = MeshShape(1, ranks, 1, 1), .shard_optimizer = shard}, world_);
    GradientNoise const noise = run.step(0, {}).noise;
    if (ranks == 1) {
      EXPECT_EQ(noise.variance, 0) << "one rank has no parts";
      continue;
    }
    LayoutRun alone(variant, Layout{}, Communicator::self());
    double parts = 0;  // the mean of the squared norms of the parts' mean gradients
    for (int rank = 0; rank < ranks; ++rank) {
      alone.accumulate_part(0, share(micro_batches, rank, ranks));
      parts += ranks * square_of_gradients(alone);
    }
    alone.accumulate(0);
    double const whole = square_of_gradients(alone);
    auto const tokens = static_cast<double>(target_tokens(0));
    double const variance = (parts - whole) / (ranks / tokens - 1 / tokens);
    EXPECT_NEAR(noise.variance, variance, 1e-9 * variance);
    EXPECT_NEAR(noise.square, whole - variance / tokens, 1e-9 * whole);
  }
  LayoutRun plain({NormPlacement::pre, true}, {.shape = MeshShape(1, world_.size(), 1, 1)}, world_);
  EXPECT_EQ(plain.step(0, {}).noise.variance, 0) << "nobody asked for it";
}

}  // namespace
}  // namespace heddle
