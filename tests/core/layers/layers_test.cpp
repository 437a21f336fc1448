#include <heddle/core/model/built_in_layers.hpp>

#include "golden_model.hpp"
#include "kernel_test_support.hpp"
#include "test_ids.hpp"

namespace heddle {
namespace {

ModelConfig small_model() {
  ModelConfig config;
  config.encoder.layers = 1;
  config.decoder.layers = 1;
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
  std::vector<Sample> const pairs{{4, {5, 6, 5}, {7}}, {9, {}, {4, 4, 8}}, {2, {7, 3}, {}}};
  return make_pack(pairs, test_ids);
}

Tensor numbered(std::string const& name, Shape const& shape) {
  return random_tensor(DType::float64, shape, random_key(0, name));
}

/// The interface of a layer or a stack for the check: a function of hidden states and of parameters.
struct Function {
  std::function<HiddenStates(LayerContext&, HiddenStates const&, Saved&)> forward;
  std::function<HiddenStates(LayerContext&, HiddenStates const&, Saved const&)> backward;
};

/// Checks the gradients of the input, of the memory if there is one, and of every parameter, with dropout.
void expect_gradients(TestBench& bench, Side side, bool with_encoder_output, Function const& function) {
  Pack const pack = small_pack();
  LayerContext context = bench.context(pack, true);
  Shape const shape{pack.rows(side).tokens, small_model().d_model};
  Shape const encoder_output_shape{pack.source_rows.tokens, small_model().d_model};
  HiddenStates const input{numbered("input", shape),
                           with_encoder_output ? numbered("memory", encoder_output_shape) : Tensor()};
  Tensor const hidden_factors = numbered("hidden factors", shape);
  Tensor const encoder_output_factors = numbered("memory factors", encoder_output_shape);

  auto const objective = [&] {
    ArenaScope const scope(bench.arena());
    Saved saved;
    HiddenStates const output = function.forward(context, input, saved);
    return weighted_sum(hidden_factors, output.hidden) +
           (with_encoder_output ? weighted_sum(encoder_output_factors, output.encoder_output) : 0);
  };

  Saved saved;
  static_cast<void>(function.forward(context, input, saved));
  // Gradients are added to their buffers: start from values that must remain.
  double const already = 0.5;
  std::vector<double> const start(static_cast<std::size_t>(bench.parameters().size()), already);
  copy_from_doubles(bench.parameters().gradients(), start);
  HiddenStates const grad_output{numbered("hidden factors", shape),
                                 with_encoder_output ? numbered("memory factors", encoder_output_shape) : Tensor()};
  HiddenStates const grad_input = function.backward(context, grad_output, saved);

  expect_gradient(objective, input.hidden, grad_input.hidden, "input");
  if (with_encoder_output) {
    expect_gradient(objective, input.encoder_output, grad_input.encoder_output, "memory");
  }
  for (Parameter const& parameter : bench.parameters().all()) {
    expect_gradient(objective, parameter.value, parameter.gradient, parameter.spec.name.c_str(), already);
  }
}

class ResidualStackTest : public testing::TestWithParam<std::tuple<NormPlacement, Side, int>> {
 protected:
  ResidualStackTest() : bench_(config(), DType::float64) {
    StackKind const& kind = stack_kind(side_ == Side::target ? "decoder" : "encoder");
    ModelConfig keys = config();
    (keys.*kind.config).layers = std::get<int>(GetParam());
    StackDescription const description = describe_stack(keys, kind, bench_.registries().layers);
    stack_.emplace(bench_.spec(description.name, side_), bench_.registries().layers, description,
                   IndexRange{0, description.count()});
    bench_.allocate();
  }

  static ModelConfig config() {
    ModelConfig config = small_model();
    config.norm = std::get<NormPlacement>(GetParam());
    if (config.norm == NormPlacement::output) {
      config.norm_epsilon = 0.05;  // norms of small numbers are steep: differences would not be their derivatives
    }
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
                         testing::Combine(testing::Values(NormPlacement::post, NormPlacement::pre, NormPlacement::both,
                                                          NormPlacement::output),
                                          testing::Values(Side::source, Side::target), testing::Values(0, 1, 2)));

class ModelGradientTest : public testing::TestWithParam<std::tuple<NormPlacement, Positions, bool>> {};

TEST_P(ModelGradientTest, EqualsCentralDifferencesOfTheSmoothedLoss) {
  ModelConfig config = small_model();
  std::tie(config.norm, config.positions, config.tie_embeddings) = GetParam();
  TestModel test(config, {9, 9, true}, DType::float64);
  Pack const pack = small_pack();
  LayerContext context = test.bench.context(pack, true);
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

TEST(DropoutTest, EachRateActsWhereItSaysAndOnlyInTraining) {
  ModelConfig config = small_model();
  auto const losses = [&](double dropout, double attention, double activation) {
    config.dropout = dropout;
    config.attention_dropout = attention;
    config.activation_dropout = activation;
    TestModel test(config, {9, 9, true}, DType::float64);
    Pack const pack = small_pack();
    auto const loss = [&](bool training) {
      LayerContext context = test.bench.context(pack, training);
      return test.model.forward(context, 0.1).smoothed;
    };
    return std::pair{loss(true), loss(false)};
  };
  auto const [plain, plain_evaluation] = losses(0, 0, 0);
  EXPECT_EQ(plain, plain_evaluation);
  for (auto const& [training, evaluation] : {losses(0.2, 0, 0), losses(0, 0.2, 0), losses(0, 0, 0.2)}) {
    EXPECT_GT(std::abs(training - plain), 1e-4);
    EXPECT_EQ(evaluation, plain);
  }
}

TEST(DropoutTest, LayersOfOtherNamesDropOtherElements) {
  Pack const pack = small_pack();
  for (char const* const name : {"self_attention", "cross_attention", "feed_forward"}) {
    TestBench first(small_model(), DType::float64);
    TestBench second(small_model(), DType::float64);
    auto const first_layer = first.registries().layers.build(name, first.spec("first", Side::target));
    auto const second_layer = second.registries().layers.build(name, second.spec("second", Side::target));
    first.allocate();
    second.allocate();
    copy_from_doubles(second.parameters().values(), heddle::values(first.parameters().values()));
    HiddenStates const input{numbered("input", {pack.target_rows.tokens, small_model().d_model}),
                             numbered("memory", {pack.source_rows.tokens, small_model().d_model})};
    auto const output = [&](TestBench& bench, Layer const& layer, bool training) {
      LayerContext context = bench.context(pack, training);
      Saved saved;
      return heddle::values(layer.forward(context, input, saved).hidden);
    };
    EXPECT_EQ(output(first, *first_layer, false), output(second, *second_layer, false)) << name;
    EXPECT_NE(output(first, *first_layer, true), output(second, *second_layer, true)) << name;
  }
}

TEST(DropoutTest, EachSublayerDropsItsOwnElements) {
  // The branches give ones everywhere: the residual stream counts how often an element was kept, 0, 1 or 2 times. If
  // the two sublayers dropped the same elements, none would be kept once.
  ModelConfig config = small_model();
  config.norm = NormPlacement::pre;
  config.dropout = 0.5;
  config.activation_dropout = 0;
  TestBench bench(config, DType::float64);
  config.encoder = {.layers = 2, .sublayers = {"feed_forward"}};
  StackDescription const description = describe_stack(config, stack_kind("encoder"), bench.registries().layers);
  ResidualStack const stack(bench.spec("encoder", Side::source), bench.registries().layers, description, {0, 2});
  bench.allocate();
  for (Parameter const& parameter : bench.parameters().all()) {
    std::string const& name = parameter.spec.name;
    double const value = name.ends_with("down.bias") || name.ends_with("norm.weight") ? 1 : 0;
    copy_from_doubles(parameter.value, std::vector<double>(static_cast<std::size_t>(parameter.value.size()), value));
  }
  Pack const pack = small_pack();
  LayerContext context = bench.context(pack, true);
  Saved saved;
  Tensor const zeros = Tensor::allocate(DType::float64, {pack.source_rows.tokens, config.d_model});
  std::vector<double> const output = heddle::values(stack.forward(context, {zeros, {}}, saved).hidden);
  bool three_values = false;
  auto const columns = static_cast<std::size_t>(config.d_model);
  for (std::size_t begin = 0; begin < output.size(); begin += columns) {
    std::set<std::int64_t> row;
    for (std::size_t column = 0; column < columns; ++column) {
      row.insert(std::llround(1e6 * output[begin + column]));
    }
    three_values = three_values || row.size() == 3;
  }
  EXPECT_TRUE(three_values);
}

TEST(LayerRegistryTest, AnUnknownLayerIsNamedWithTheNearest) {
  TestBench bench(small_model(), DType::float64);
  try {
    bench.registries().layers.build("self_atention", bench.spec("encoder.layers.0.x", Side::source));
    FAIL() << "nothing thrown";
  } catch (ConfigError const& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean self_attention?"), std::string::npos);
  }
}

TEST(LayerRegistryTest, AnEncoderHasNoCrossAttention) {
  TestBench bench(small_model(), DType::float64);
  try {
    bench.registries().layers.build("cross_attention", bench.spec("encoder.layers.0.cross_attention", Side::source));
    FAIL() << "nothing thrown";
  } catch (ConfigError const& error) {
    EXPECT_NE(std::string(error.what()).find("model.sublayers names cross_attention"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace heddle
