#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <heddle/core/layers/linear.hpp>
#include <heddle/dist/training/training_engine.hpp>
#include <map>

#include "dist_fixture.hpp"
#include "golden_model.hpp"
#include "kernel_test_support.hpp"
#include "layouts.hpp"
#include "test_ids.hpp"
#include "test_micro_batches.hpp"

namespace heddle {
namespace {

using testing_support::values;
using Values = std::map<std::string, std::vector<double>>;

constexpr VocabularySizes vocabulary{23, 23, true};

/// A layer whose author did not consider tensor ranks: a projection that is not split.
class Projection : public Layer {
 public:
  explicit Projection(LayerSpec const& spec)
      : linear_(spec, {spec.model.d_model, spec.model.d_model}, Linear::Split::none) {}

  HiddenStates forward(LayerContext& context, HiddenStates const& input, Saved& saved) const override {
    saved.keep(input.hidden);
    return {linear_.forward(context, input.hidden), input.encoder_output};
  }
  HiddenStates backward(LayerContext& context, HiddenStates const& grad_output, Saved const& saved) const override {
    return {linear_.backward(context, grad_output.hidden, saved.get<Tensor>()), grad_output.encoder_output};
  }

 private:
  Linear linear_;
};

/// The parameters after two steps, each rank's part of them.
Values trained(Layout const& layout, ParallelState const& parallel, Values const* compared) {
  Config config = tiny_config(layout);
  config.model.encoder.layers = config.model.decoder.layers = 2;
  config.model.dropout = 0.1;
  config.model.encoder.sublayers = {"self_attention", "projection"};
  config.model.decoder.sublayers = {"self_attention", "cross_attention", "projection"};
  config.train.seed = 3;
  TestBench bench(config.model, DType::float64, KernelChoices{});
  Registries registries = bench.registries();
  registries.layers.add("projection", [](LayerSpec const& spec) { return std::make_unique<Projection>(spec); });
  TrainingEngine engine({config, registries, parallel, bench.execution(), vocabulary, DType::float64});
  engine.parameters().initialize(config.train.seed);
  std::array const pairs{SentencePair{0, {3, 9, 4, 20, 7}, {5, 6, 11}}, SentencePair{1, {8}, {12, 4, 9, 17}}};
  for (int step = 0; step < 2; ++step) {
    bool const works = parallel.data.rank() == 0;
    auto const make = [&](std::int64_t) { return make_pack(pairs, test_ids, engine.context()); };
    engine.step(TestMicroBatches(works ? 1 : 0, make, 9), step, 0.01);
  }
  Values result;
  for (Parameter const& parameter : engine.parameters().all()) {
    result[parameter.spec.name] = values(parameter.value);
    if (compared != nullptr) {
      auto expected = local_part(compared->at(parameter.spec.name), parameter);
      auto actual = result[parameter.spec.name];
      if (parameter.spec.name.ends_with(".k.bias")) {
        // A key's bias does not affect the softmax: its updates are only rounding, which is compared with 1.
        expected.push_back(1);
        actual.push_back(1);
      }
      EXPECT_LE(relative_error(actual, expected), 1e-7) << parameter.spec.name;
    }
  }
  return result;
}

class PlainLayerTest : public DistTest {};

TEST_F(PlainLayerTest, ALayerThatIsNotSplitTrainsAsOnOneRank) {
  Values const expected = trained({}, ParallelState(), nullptr);
  for (Layout const& layout : layouts_on(world_.size())) {
    SCOPED_TRACE(describe(layout));
    if (layout.size(MeshAxis::pipeline) <= 2) {  // the stacks have two layers each
      trained(layout, parallel_of(layout, world_), &expected);
    }
  }
}

TEST_F(PlainLayerTest, ALayerIsNeverComputedInAWayThatItDoesNotDeclare) {
  Config config = tiny_config({});
  config.model.encoder.layers = config.model.decoder.layers = 1;
  config.model.decoder.settings = {{"self_attention.kv_heads", {std::int64_t{1}, "run.toml:1:1"}}};
  TestBench bench(config.model, DType::float64, KernelChoices{});
  ParallelState const parallel = parallel_of({.shape = {1, 1, 1, world_.size()}}, world_);
  std::string const message = error_of([&] {
    TrainingEngine({config, bench.registries(), parallel, bench.execution(), vocabulary, DType::float64});
  });
  EXPECT_EQ(message,
            world_.size() == 1
                ? "nothing was thrown"
                : "run.toml:1:1: model.decoder.self_attention.kv_heads = 1 cannot be divided among parallel.tensor = " +
                      std::to_string(world_.size()) + ", which may be 1 (decoder.layers.0.self_attention)");
}

}  // namespace
}  // namespace heddle
