#include <heddle/core/layers/linear.hpp>
#include <heddle/dist/training/training_engine.hpp>

#include "dist_fixture.hpp"
#include "golden_model.hpp"
#include "kernel_test_support.hpp"
#include "layouts.hpp"
#include "penalized_projection.hpp"
#include "test_ids.hpp"
#include "test_micro_batches.hpp"

namespace heddle {
namespace {

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

struct Trained {
  Values parameters;  ///< each rank's part of them
  std::vector<double> losses;
};

/// Two steps of a model whose layers have `layer`, or what differs from them on one rank.
Trained trained(Layout const& layout, ParallelState const& parallel, std::string const& layer, Trained const* compared,
                bool deterministic = false) {
  Config config = tiny_config(layout);
  config.train.deterministic = deterministic;
  config.model.encoder.layers = config.model.decoder.layers = 2;
  config.model.dropout = 0.1;
  config.model.encoder.sublayers = {"self_attention", layer};
  config.model.decoder.sublayers = {"self_attention", "cross_attention", layer};
  config.train.seed = 3;
  TestBench bench(config.model, DType::float64, KernelChoices{});
  Registries registries = bench.registries();
  registries.layers.add("projection", [](LayerSpec const& spec) { return std::make_unique<Projection>(spec); });
  register_penalized_projection(registries.layers, 0.2);
  TrainingEngine engine({config, registries, parallel, bench.execution(), vocabulary, DType::float64});
  engine.parameters().initialize(config.train.seed);
  std::array const pairs{Sample{0, {3, 9, 4, 20, 7}, {5, 6, 11}}, Sample{1, {8}, {12, 4, 9, 17}}};
  Trained result;
  for (int step = 0; step < 2; ++step) {
    // Deterministic steps know all micro-batches.
    IndexRange const mine =
        deterministic ? IndexRange{0, 2} : share(std::ssize(pairs), parallel.data.rank(), parallel.data.size());
    auto const make = [&](std::int64_t index) {
      return make_pack(std::span(pairs).subspan(static_cast<std::size_t>(mine.begin + index), 1), test_ids,
                       engine.context());
    };
    double const loss = engine.step(TestMicroBatches(mine.count(), make, 9), step, 0.01).loss;
    result.losses.push_back(loss);
    EXPECT_NEAR(loss, compared == nullptr ? loss : compared->losses[static_cast<std::size_t>(step)], 1e-10 * loss);
  }
  for (Parameter const& parameter : engine.parameters().all()) {
    auto actual = held_values(engine.parameters(), parameter);
    result.parameters[parameter.spec.name] = actual;
    if (compared != nullptr) {
      auto expected = held_part(compared->parameters.at(parameter.spec.name), engine.parameters(), parameter);
      if (parameter.spec.name.ends_with(".k.bias")) {
        // A key's bias does not affect the softmax: its updates are only rounding, which is compared with 1.
        expected.push_back(1);
        actual.push_back(1);
      }
      EXPECT_LE(actual.empty() ? 0 : relative_error(actual, expected), 1e-7) << parameter.spec.name;
    }
  }
  return result;
}

class PlainLayerTest : public DistTest {};

TEST_F(PlainLayerTest, ALayerThatIsNotSplitTrainsAsOnOneRank) {
  Trained const expected = trained({}, ParallelState(), "projection", nullptr);
  for (Layout const& layout : layouts_on(world_.size())) {
    SCOPED_TRACE(describe(layout));
    if (layout.size(MeshAxis::pipeline) <= 2) {  // the stacks have two layers each
      trained(layout, parallel_of(layout, world_), "projection", &expected);
    }
  }
}

/// Stages, data and context ranks add their parts of an auxiliary loss, each tensor rank the whole.
TEST_F(PlainLayerTest, AnAuxiliaryLossIsTheSameInEveryLayout) {
  Trained const expected = trained({}, ParallelState(), "penalized", nullptr);
  EXPECT_GT(expected.losses.front(), 1.05 * trained({}, ParallelState(), "projection", nullptr).losses.front());
  for (Layout const& layout : layouts_on(world_.size())) {
    for (bool const deterministic : {false, true}) {
      SCOPED_TRACE(describe(layout) + (deterministic ? ", deterministic" : ""));
      if (layout.size(MeshAxis::pipeline) <= 2) {
        trained(layout, parallel_of(layout, world_), "penalized", &expected, deterministic);
      }
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
