#include <heddle/core/tensor/pack.hpp>
#include <heddle/dist/training/training_engine.hpp>

#include "golden_model.hpp"
#include "test.hpp"
#include "test_ids.hpp"
#include "test_micro_batches.hpp"

namespace heddle {
namespace {

Pack pack_of(std::int64_t index) {
  std::vector<Sample> pairs;
  for (std::int32_t sample = 0; sample < 3; ++sample) {
    auto const number = static_cast<std::int32_t>(3 * index) + sample;
    pairs.push_back({number, std::vector<std::int32_t>(4, 3 + number), std::vector<std::int32_t>(3, 4 + number)});
  }
  return make_pack(pairs, test_ids);
}

TEST(TrainingStep, ReportsTheLossWithoutSmoothingAsValidationDoes) {
  constexpr std::int64_t micro_batches = 5;
  constexpr std::int64_t tokens = micro_batches * 3 * 4;  // end tokens included
  for (bool const deterministic : {false, true}) {
    Config config;
    config.model.encoder.layers = config.model.decoder.layers = 1;
    config.model.d_model = 32;
    config.model.d_ff = 48;
    config.model.heads = 4;
    config.model.max_length = 16;
    config.model.dropout = 0;
    config.train.label_smoothing = 0.2;
    config.train.z_loss = 0.01;
    config.train.deterministic = deterministic;
    TestBench bench(config.model, DType::float32, KernelChoices());
    ParallelState const parallel;
    TrainingEngine engine({config, bench.registries(), parallel, bench.execution(), {23, 23, true}});
    engine.parameters().initialize(1);
    TestMicroBatches const batch(micro_batches, pack_of, tokens);
    LossSums const sums = engine.evaluate(batch);
    int calls = 0;
    EXPECT_EQ(engine.evaluate(batch, [&] { ++calls; }).negative_log_likelihood, sums.negative_log_likelihood);
    EXPECT_EQ(calls, 2) << "before each round of four";
    EXPECT_THROW(engine.evaluate(batch, [] { throw Error("stop"); }), Error);
    EXPECT_EQ(engine.evaluate(batch).negative_log_likelihood, sums.negative_log_likelihood);
    StepResult const result = engine.step(batch, 0, 0.001);
    EXPECT_EQ(sums.tokens, tokens);
    EXPECT_NEAR(result.nll, sums.negative_log_likelihood / static_cast<double>(tokens), 1e-6 * result.nll);
    EXPECT_GT(result.loss, result.nll + 0.01);
  }
}

}  // namespace
}  // namespace heddle
