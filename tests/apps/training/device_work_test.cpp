#include <heddle/core/tensor/device_work.hpp>
#include <heddle/core/tensor/execution.hpp>
#include <heddle/core/tensor/pack.hpp>
#include <heddle/dist/training/training_engine.hpp>

#include "golden_model.hpp"
#include "test.hpp"
#include "test_ids.hpp"
#include "test_micro_batches.hpp"

namespace heddle {
namespace {

constexpr std::int64_t micro_batches = 3;

Pack pack_of(int step, std::int64_t index, PackMemory& memory) {
  std::vector<Sample> pairs;
  for (std::int32_t sample = 0; sample < 4; ++sample) {
    auto const token = static_cast<std::int32_t>(3 + (step + index + sample) % 17);
    pairs.push_back({static_cast<std::int32_t>(4 * index) + sample, std::vector<std::int32_t>(5, token),
                     std::vector<std::int32_t>(4, token)});
  }
  PackFields tokens;
  fill_tokens(tokens, pairs, test_ids);
  return make_pack(tokens, {}, &memory);
}

/// Training on one rank of a device: deterministic or not, in this precision.
class DeviceWorkTest : public testing::TestWithParam<std::pair<bool, DType>> {};

TEST_P(DeviceWorkTest, AStepWaitsOnceAndAllocatesNothing) {
  if (!device_work()) {
    GTEST_SKIP() << "only a build with HEDDLE_EMULATE_DEVICE (preset emulated-device) counts a device's work";
  }
  auto const [deterministic, dtype] = GetParam();
  Config config;
  config.model.encoder.layers = config.model.decoder.layers = 2;
  config.model.d_model = 32;
  config.model.d_ff = 48;
  config.model.heads = 4;
  config.model.max_length = 16;
  config.model.dropout = 0.1;
  config.train.deterministic = deterministic;
  config.optimizer.clip_norm = 0.5;
  TestBench bench(config.model, dtype, KernelChoices());
  ParallelState const parallel;
  TrainingEngine engine({config, bench.registries(), parallel, bench.execution(), {23, 23, true}, dtype});
  engine.parameters().initialize(1);
  PackMemory memory;
  for (int step = 0; step < 8; ++step) {
    auto const make = [&](std::int64_t index) { return pack_of(step, index, memory); };
    reset_device_work();
    StepResult const result = engine.step(TestMicroBatches(micro_batches, make, 60), step, 0.001);
    EXPECT_GT(result.loss, 0);
    EXPECT_GT(result.gradient_norm, 0);
    if (step < 3) {
      continue;
    }
    DeviceWork const work = device_work().value();
    EXPECT_EQ(work.copies_to_host, 1) << "losses and norm";
    EXPECT_EQ(work.copies_to_device, micro_batches + 1) << "packs, and Adam's scalars";
    EXPECT_EQ(work.allocations, 0);
    EXPECT_EQ(work.fences, 0);
    EXPECT_GT(work.kernels, 100);
  }
}

INSTANTIATE_TEST_SUITE_P(Steps, DeviceWorkTest,
                         testing::Values(std::pair{false, DType::float32}, std::pair{true, DType::float32},
                                         std::pair{false, DType::bfloat16}));

}  // namespace
}  // namespace heddle
