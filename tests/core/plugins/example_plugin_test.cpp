#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <heddle/core/base/error.hpp>
#include <heddle/core/model/built_in_layers.hpp>
#include <heddle/core/operations/activation.hpp>
#include <heddle/core/operations/dropout.hpp>
#include <heddle/core/plugins/loading.hpp>
#include <heddle/kernels/register.hpp>

#include "golden_model.hpp"
#include "kernel_test_support.hpp"
#include "test_ids.hpp"

// The computations of apps/examples/plugin. tests/integration/plugin.sh builds it out of tree, against the installed
// package, and then runs these tests with HEDDLE_EXAMPLE_PLUGIN set to its path.

namespace heddle {
namespace {

using testing_support::expect_gradient;
using testing_support::weighted_sum;

class ExamplePlugin : public testing::Test {
 protected:
  void SetUp() override {
    char const* const path = std::getenv("HEDDLE_EXAMPLE_PLUGIN");
    if (path == nullptr) {
      GTEST_SKIP() << "integration.plugin runs this with the plug-in that it has built";
    }
    register_built_in_kernels(registries_.kernels);
    register_built_in_layers(registries_.layers);
    load_plugin(path, registries_);
    choices_.choose("activation", "auto");
  }

  static ModelConfig model() {
    ModelConfig config;
    config.d_model = 6;
    config.d_ff = 10;
    config.heads = 2;
    config.activation = "swish";
    config.activation_dropout = 0.3;
    return config;
  }
  static Tensor numbered(std::string const& name, Shape const& shape) {
    return testing_support::random_tensor(DType::float64, shape, random_key(0, name));
  }
  static Pack pack() {
    std::vector<SentencePair> const pairs{{4, {5, 6, 5}, {7}}, {9, {}, {4, 4, 8}}};
    return make_pack(pairs, test_ids);
  }

  Registries registries_;
  KernelChoices choices_ = reference_kernels();
};

TEST_F(ExamplePlugin, SwishIsXTimesItsSigmoid) {
  TestBench bench(model(), DType::float64);
  KernelSource const kernels{registries_.kernels, choices_};
  for (DType const dtype : {DType::float64, DType::float32, DType::bfloat16}) {
    auto const swish = kernels.select<Activation>({dtype, "swish"});
    Tensor const input = testing_support::tensor_of({-40, -1, 0, 0.5, 2, 40}, dtype, {2, 3});
    Tensor const output = Tensor::allocate(dtype, {2, 3});
    swish->forward(bench.execution(), {"swish", input}, output);
    Tensor const expected = testing_support::tensor_of({-40 / (1 + std::exp(40.0)), -1 / (1 + std::exp(1.0)), 0,
                                                        0.5 / (1 + std::exp(-0.5)), 2 / (1 + std::exp(-2.0)), 40},
                                                       DType::float64, {2, 3});
    testing_support::expect_close(output, expected, dtype, "swish");
  }
}

TEST_F(ExamplePlugin, IsRegisteredWholeOrNotAtAll) {
  Registries registries;
  registries.layers.add("gated_feed_forward", [](LayerSpec const&) { return std::unique_ptr<Layer>(); });
  EXPECT_THROW(load_plugin(std::getenv("HEDDLE_EXAMPLE_PLUGIN"), registries), ConfigError);
  EXPECT_TRUE(registries.kernels.of<Activation>().entries().empty())
      << "the kernel came before the layer whose name is taken";
  registries.kernels.of<Activation>().add("later", 0, registries_.kernels.of<Activation>().entries().front().kernel);
  EXPECT_EQ(registries.kernels.of<Activation>().entries().front().origin, "built-in");
}

// Dropout follows one rule: it drops the same elements of relu and of swish.
TEST_F(ExamplePlugin, DropoutDropsWhatItDropsElsewhere) {
  TestBench bench(model(), DType::float64);
  KernelSource const kernels{registries_.kernels, choices_};
  Shape const shape{7, 21};
  Tensor const input = testing_support::random_tensor(DType::float64, shape, 1, 1, 2);
  Tensor const swish = Tensor::allocate(DType::float64, shape);
  Tensor const relu = Tensor::allocate(DType::float64, shape);
  Dropout dropout = testing_support::dropout_of(0.4F, 7);
  dropout.first_column = 5;
  kernels.select<Activation>({DType::float64, "swish"})->forward(bench.execution(), {"swish", input, dropout}, swish);
  kernels.select<Activation>({DType::float64, "relu"})->forward(bench.execution(), {"relu", input, dropout}, relu);
  std::vector<double> const x = testing_support::values(input);
  std::vector<double> const multiplied = testing_support::values(relu);
  std::vector<double> const actual = testing_support::values(swish);
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_NEAR(actual[i], multiplied[i] / (1 + std::exp(-x[i])), 1e-12) << i;
  }
}

TEST_F(ExamplePlugin, GatedFeedForwardsGradientsEqualCentralDifferences) {
  TestBench bench(model(), DType::float64);
  ModelConfig const config = model();
  ParallelState const parallel;
  LayerSpec const spec{"stack.layers.0.gated_feed_forward",
                       Side::source,
                       config,
                       DType::float64,
                       {registries_.kernels, choices_},
                       parallel,
                       bench.parameters()};
  auto const layer = registries_.layers.build("gated_feed_forward", spec);
  bench.allocate();
  Pack const sentences = pack();
  LayerContext context = bench.context(sentences, true);
  Shape const shape{sentences.source_rows.tokens, config.d_model};
  HiddenStates const input{numbered("input", shape), {}};
  Tensor const factors = numbered("factors", shape);
  auto const objective = [&] {
    ArenaScope const scope(bench.arena());
    Saved saved;
    return weighted_sum(factors, layer->forward(context, input, saved).hidden);
  };

  Saved saved;
  static_cast<void>(layer->forward(context, input, saved));
  bench.zero_gradients();
  HiddenStates const grad_input = layer->backward(context, {numbered("factors", shape), {}}, saved);
  expect_gradient(objective, input.hidden, grad_input.hidden, "input");
  EXPECT_EQ(bench.parameters().all().size(), 6U);
  for (Parameter const& parameter : bench.parameters().all()) {
    expect_gradient(objective, parameter.value, parameter.gradient, parameter.spec.name.c_str());
  }
}

}  // namespace
}  // namespace heddle
