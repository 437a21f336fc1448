#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "golden_model.hpp"
#include "kernel_test_support.hpp"

namespace heddle {
namespace {

using testing_support::expect_gradient;
using testing_support::weighted_sum;

ModelConfig small_model() {
  ModelConfig config;
  config.encoder_layers = 1;
  config.decoder_layers = 1;
  config.d_model = 6;
  config.d_ff = 8;
  config.heads = 2;
  config.max_length = 8;
  config.dropout = 0.2;
  config.attention_dropout = 0.2;
  config.activation_dropout = 0.2;
  return config;
}

Pack small_pack() {
  std::vector<SentencePair> const pairs{{4, {5, 6, 5}, {7}}, {9, {}, {4, 4, 8}}, {2, {7, 3}, {}}};
  return make_pack(pairs, 1, 2, 2);
}

Tensor numbered(std::string const& name, Shape const& shape) {
  return testing_support::random_tensor(DType::float64, shape, random_key(0, name));
}

/// What a layer and a stack have in common for the check: a function of a stream and of parameters.
struct Function {
  std::function<Stream(Context&, Stream const&, Saved&)> forward;
  std::function<Stream(Context&, Stream const&, Saved const&)> backward;
};

/// Checks the gradients of the input, of the memory where there is one, and of every parameter, with dropout.
void expect_gradients(TestBench& bench, Side side, bool with_memory, Function const& function) {
  Pack const pack = small_pack();
  Context context = bench.context(pack, true);
  Shape const shape{pack.rows(side).tokens, small_model().d_model};
  Shape const memory_shape{pack.source_rows.tokens, small_model().d_model};
  Stream const input{numbered("input", shape), with_memory ? numbered("memory", memory_shape) : Tensor()};
  Tensor const hidden_factors = numbered("hidden factors", shape);
  Tensor const memory_factors = numbered("memory factors", memory_shape);

  auto const objective = [&] {
    ArenaScope const scope(bench.arena());
    Saved saved;
    Stream const output = function.forward(context, input, saved);
    return weighted_sum(hidden_factors, output.hidden) +
           (with_memory ? weighted_sum(memory_factors, output.memory) : 0);
  };

  Saved saved;
  static_cast<void>(function.forward(context, input, saved));
  // Gradients are added to what is there: start from something that must remain.
  double const already = 0.5;
  std::vector<double> const start(static_cast<std::size_t>(bench.parameters().size()), already);
  copy_from_doubles(bench.parameters().gradients(), start);
  Stream const grad_output{numbered("hidden factors", shape),
                           with_memory ? numbered("memory factors", memory_shape) : Tensor()};
  Stream const grad_input = function.backward(context, grad_output, saved);

  expect_gradient(objective, input.hidden, grad_input.hidden, "input");
  if (with_memory) {
    expect_gradient(objective, input.memory, grad_input.memory, "memory");
  }
  for (Parameter const& parameter : bench.parameters().all()) {
    expect_gradient(objective, parameter.value, parameter.gradient, parameter.spec.name.c_str(), already);
  }
}

class LayerGradientTest : public testing::TestWithParam<std::tuple<std::string, Side, std::string>> {};

TEST_P(LayerGradientTest, EqualsCentralDifferences) {
  auto const& [name, side, activation] = GetParam();
  ModelConfig config = small_model();
  config.activation = activation;
  TestBench bench(config, DType::float64);
  auto const layer = bench.registries().layers.build(name, bench.spec("stack.layers.0." + name, side));
  bench.allocate();
  bool const with_memory = name == "cross_attention" || side == Side::target;
  expect_gradients(bench, side, with_memory,
                   {[&](auto&... arguments) { return layer->forward(arguments...); },
                    [&](auto&... arguments) { return layer->backward(arguments...); }});
}

INSTANTIATE_TEST_SUITE_P(Layers, LayerGradientTest,
                         testing::Combine(testing::Values("self_attention", "cross_attention", "feed_forward"),
                                          testing::Values(Side::source, Side::target),
                                          testing::Values("relu", "gelu")));

TEST(LayerGradientTest, CoversEveryBuiltInLayer) {
  LayerRegistry registry;
  register_built_in_layers(registry);
  EXPECT_EQ(registry.entries().size(), 3U);
}

class ResidualStackTest : public testing::TestWithParam<std::tuple<NormPlacement, Side, int>> {
 protected:
  ResidualStackTest() : bench_(config(), DType::float64) {
    bool const decoder = side_ == Side::target;
    stack_.emplace(bench_.spec(decoder ? "decoder" : "encoder", side_), bench_.registries().layers,
                   std::get<int>(GetParam()), decoder ? config().decoder_sublayers : config().encoder_sublayers);
    bench_.allocate();
  }

  static ModelConfig config() {
    ModelConfig config = small_model();
    config.norm = std::get<NormPlacement>(GetParam());
    return config;
  }

  Side side_ = std::get<Side>(GetParam());
  TestBench bench_;
  std::optional<ResidualStack> stack_;
};

TEST_P(ResidualStackTest, GradientsEqualCentralDifferences) {
  expect_gradients(bench_, side_, side_ == Side::target,
                   {[&](auto&... arguments) { return stack_->forward(arguments...); },
                    [&](auto&... arguments) { return stack_->backward(arguments...); }});
}

INSTANTIATE_TEST_SUITE_P(Stacks, ResidualStackTest,
                         testing::Combine(testing::Values(NormPlacement::post, NormPlacement::pre),
                                          testing::Values(Side::source, Side::target), testing::Values(0, 1, 2)));

class ModelGradientTest : public testing::TestWithParam<std::tuple<NormPlacement, Positions, bool>> {};

TEST_P(ModelGradientTest, EqualsCentralDifferencesOfTheSmoothedLoss) {
  ModelConfig config = small_model();
  std::tie(config.norm, config.positions, config.tie_embeddings) = GetParam();
  TestModel test(config, {9, 9, true}, DType::float64);
  Pack const pack = small_pack();
  Context context = test.bench.context(pack, true);
  double const smoothing = 0.1;
  double const scale = 0.25;
  static_cast<void>(test.model.forward_backward(context, {smoothing, scale}));
  for (Parameter const& parameter : test.bench.parameters().all()) {
    expect_gradient([&] { return scale * test.model.forward(context, smoothing).smoothed; }, parameter.value,
                    parameter.gradient, parameter.spec.name.c_str());
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ModelGradientTest,
                         testing::Combine(testing::Values(NormPlacement::post, NormPlacement::pre),
                                          testing::Values(Positions::sinusoidal, Positions::learned), testing::Bool()));

TEST(LayerRegistryTest, AnUnknownLayerIsNamedWithTheKnownOnes) {
  TestBench bench(small_model(), DType::float64);
  try {
    bench.registries().layers.build("self_atention", bench.spec("encoder.layers.0.x", Side::source));
    FAIL() << "nothing thrown";
  } catch (ConfigError const& error) {
    EXPECT_NE(std::string(error.what()).find("self_attention, cross_attention, feed_forward"), std::string::npos);
  }
}

}  // namespace
}  // namespace heddle
