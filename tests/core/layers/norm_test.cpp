#include <heddle/core/layers/norm.hpp>

#include "golden_model.hpp"
#include "kernel_test_support.hpp"
#include "test_ids.hpp"

namespace heddle {
namespace {

constexpr VocabularySizes vocabulary{9, 9, true};

Setting set(OptionValue value) {
  return {std::move(value), "test"};
}

/// Norms wherever they can stand, of both kinds.
ModelConfig norms_everywhere() {
  ModelConfig config;
  config.encoder.layers = 1;
  config.decoder.layers = 2;
  config.d_model = 6;
  config.d_ff = 8;
  config.heads = 2;
  config.max_length = 8;
  config.dropout = 0.2;
  config.norm = NormPlacement::both;
  config.norm_kind = NormKind::rms;
  config.norm_epsilon = 1e-3;
  config.embedding_norm = true;
  config.encoder.settings = {{"self_attention.query_key_norm", set(true)}};
  config.decoder.settings = {{"cross_attention.query_key_norm", set(true)}};
  config.decoder.overrides = {{{1, 2},
                               {{"norm_kind", set(std::string("layer"))},
                                {"norm_epsilon", set(0.5)},
                                {"self_attention.query_key_norm", set(true)},
                                {"self_attention.kv_heads", set(std::int64_t{1})}}}};
  return config;
}

Pack small_pack() {
  std::vector<Sample> const pairs{{4, {5, 6, 5}, {7}}, {9, {}, {4, 4, 8}}, {2, {7, 3}, {}}};
  return make_pack(pairs, test_ids);
}

TEST(Norms, ParametersAreNamedAfterTheirPlaces) {
  TestModel test(norms_everywhere(), vocabulary, DType::float64);
  ParameterSet const& parameters = test.bench.parameters();
  auto const shape = [&](std::string const& name) {
    Parameter const* const parameter = parameters.find(name);
    return parameter == nullptr ? Shape() : parameter->global_shape();
  };
  for (std::string const name : {"encoder.embedding_norm", "decoder.embedding_norm", "encoder.norm", "decoder.norm",
                                 "encoder.layers.0.self_attention.norm", "encoder.layers.0.feed_forward.output_norm",
                                 "decoder.layers.0.cross_attention.output_norm"}) {
    EXPECT_EQ(shape(name + ".weight"), (Shape{6})) << name;
    EXPECT_EQ(shape(name + ".bias"), Shape()) << name << ": an rms norm";
  }
  EXPECT_EQ(shape("encoder.layers.0.self_attention.q_norm.weight"), (Shape{3})) << "of a head";
  EXPECT_EQ(shape("decoder.layers.0.cross_attention.k_norm.weight"), (Shape{3}));
  EXPECT_EQ(shape("decoder.layers.0.self_attention.q_norm.weight"), Shape());
  EXPECT_EQ(shape("decoder.layers.1.self_attention.k_norm.bias"), (Shape{3})) << "a layer norm";
  EXPECT_EQ(shape("decoder.layers.1.feed_forward.norm.bias"), (Shape{6}));
}

TEST(Norms, EverywhereGradientsEqualCentralDifferences) {
  TestModel test(norms_everywhere(), vocabulary, DType::float64);
  Pack const pack = small_pack();
  LayerContext context = test.bench.context(pack, true);
  static_cast<void>(test.model.forward_backward(context, {0.1, 0.25}));
  for (Parameter const& parameter : test.bench.parameters().all()) {
    expect_gradient([&] { return 0.25 * test.model.forward(context, 0.1).smoothed; }, parameter.value,
                    parameter.gradient, parameter.spec.name.c_str());
  }
}

TEST(Norms, EverywhereInTheKernelsThatAutoPicks) {
  TestModel expected(norms_everywhere(), vocabulary, DType::float64);
  Pack const pack = small_pack();
  LayerContext expected_context = expected.bench.context(pack, true);
  LossSums const expected_sums = expected.model.forward_backward(expected_context, {0.1, 0.25});
  TestModel test(norms_everywhere(), vocabulary, DType::float32, KernelChoices{});
  LayerContext context = test.bench.context(pack, true);
  EXPECT_NEAR(test.model.forward_backward(context, {0.1, 0.25}).smoothed, expected_sums.smoothed, 1e-4);
  for (Parameter const& parameter : expected.bench.parameters().all()) {
    Tensor const& actual = test.bench.parameters().find(parameter.spec.name)->gradient;
    // A key's bias moves no softmax: its gradient is zero but for rounding.
    std::vector<double> const right = values(parameter.gradient);
    double const largest = std::abs(*std::max_element(
        right.begin(), right.end(), [](double first, double second) { return std::abs(first) < std::abs(second); }));
    EXPECT_LE(largest * relative_error(values(actual), right), 2e-4 * std::max(largest, 1e-2)) << parameter.spec.name;
  }
}

/// The logits before and after the parameters whose names end with one of `suffixes` are multiplied by 3.
void expect_same_logits_after_scaling(ModelConfig const& config, std::vector<std::string> const& suffixes) {
  TestModel test(config, vocabulary, DType::float64);
  Pack const pack = small_pack();
  LayerContext context = test.bench.context(pack);
  std::vector<double> const before = values(test.model.logits(context));
  int scaled = 0;
  for (Parameter const& parameter : test.bench.parameters().all()) {
    for (std::string const& suffix : suffixes) {
      if (parameter.spec.name.ends_with(suffix)) {
        std::vector<double> value = values(parameter.value);
        for (double& element : value) {
          element *= 3;
        }
        copy_from_doubles(parameter.value, value);
        ++scaled;
      }
    }
  }
  test.bench.parameters().bump_versions();
  EXPECT_GT(scaled, 0);
  EXPECT_LE(relative_error(values(test.model.logits(context)), before), 1e-6) << suffixes.front();
}

// A norm undoes what multiplies its input: each place by itself, in a model that has no other norm there.
TEST(Norms, StandWhereTheySayTheyDo) {
  ModelConfig config = norms_everywhere();
  config.norm_epsilon = 1e-12;
  config.decoder.overrides[0].settings.erase("norm_epsilon");
  expect_same_logits_after_scaling(config, {"feed_forward.down.weight", "feed_forward.down.bias"});
  expect_same_logits_after_scaling(config, {"attention.out.weight", "attention.out.bias"});
  expect_same_logits_after_scaling(config, {"cross_attention.q.weight", "cross_attention.q.bias"});
  expect_same_logits_after_scaling(config, {"cross_attention.k.weight", "cross_attention.k.bias"});
  config.tie_embeddings = false;
  config.positions = Positions::learned;
  expect_same_logits_after_scaling(config, {"embedding.weight", "positions.weight"});
}

TEST(Norms, OfTheBranchIsNoPartOfTheSum) {
  // Where the norms after the branches give zeros, the stream is what it was: embeddings alone decide.
  ModelConfig config = norms_everywhere();
  config.decoder.overrides.clear();
  TestModel test(config, vocabulary, DType::float64);
  Pack const pack = small_pack();
  LayerContext context = test.bench.context(pack);
  auto const logits_with = [&](std::string const& suffix, double value) {
    for (Parameter const& parameter : test.bench.parameters().all()) {
      if (parameter.spec.name.ends_with(suffix)) {
        copy_from_doubles(parameter.value,
                          std::vector<double>(static_cast<std::size_t>(parameter.value.size()), value));
      }
    }
    test.bench.parameters().bump_versions();
    return values(test.model.logits(context));
  };
  std::vector<double> const first = logits_with(".output_norm.weight", 0);
  EXPECT_EQ(logits_with("down.bias", 0.7), first);
  EXPECT_NE(logits_with(".embedding_norm.weight", 0.7), first);
}

TEST(Norms, AStackMayHaveItsOwnDropoutOfEmbeddings) {
  ModelConfig config = norms_everywhere();
  config.decoder = {.layers = 0, .sublayers = {"feed_forward"}};
  config.dropout = 0;
  auto const loss = [&] {
    TestModel test(config, vocabulary, DType::float64);
    Pack const pack = small_pack();
    LayerContext context = test.bench.context(pack, true);
    return test.model.forward(context, 0).smoothed;
  };
  double const without = loss();
  config.decoder.settings = {{"dropout", set(0.5)}};
  EXPECT_NE(loss(), without);
}

/// Supports layer norms alone, and computes none.
class LayerNormsAlone final : public ResidualNorm {
 public:
  bool supports(ResidualNormProblem const& problem) const override { return problem.kind == NormKind::layer; }
  void forward(Execution&, ResidualNormCall const&, ResidualNormOutput const&) override {}
  void backward(Execution&, ResidualNormCall const&, ResidualNormOutput const&, Tensor const&, Tensor const&,
                ResidualNormGradients const&) override {}
};

TEST(Norms, AKindThatNoChosenKernelSupportsIsRefusedWithLayerAndKey) {
  TestBench bench(norms_everywhere(), DType::float64);
  KernelRegistries registries;
  registries.of<ResidualNorm>().add("layer_norms_alone", 1, std::make_shared<LayerNormsAlone>());
  KernelChoices const choices;
  LayerSpec const own = bench.spec("decoder", Side::target);
  LayerSpec const spec{.name = own.name,
                       .side = own.side,
                       .model = own.model,
                       .dtype = own.dtype,
                       .kernels = {registries, choices},
                       .parallel = own.parallel,
                       .parameters = own.parameters};
  expect_config_error(
      [&] { Norm::of_stream(spec, "decoder.norm"); },
      {"rms norm, 6 columns of float64 with dropout 0, without bias", "(decoder.norm, model.norm_kind = \"rms\")"});
}

/// Supports norms "mine" without bias, and computes none.
class NormsOfMine final : public ResidualNorm {
 public:
  explicit NormsOfMine(bool bias) : bias_(bias) {}
  bool supports(ResidualNormProblem const& problem) const override {
    return problem.kind == "mine" && (bias_ || !problem.bias);
  }
  void forward(Execution&, ResidualNormCall const&, ResidualNormOutput const&) override {}
  void backward(Execution&, ResidualNormCall const&, ResidualNormOutput const&, Tensor const&, Tensor const&,
                ResidualNormGradients const&) override {}

 private:
  bool bias_;
};

TEST(Norms, AKindMayBeAPlugInsAndHasABiasWhereItsKernelDoes) {
  ModelConfig model = norms_everywhere();
  model.norm_kind = "mine";
  for (bool const bias : {false, true}) {
    TestBench bench(model, DType::float64, KernelChoices());
    KernelRegistries registries = bench.registries().kernels;
    KernelChoices const choices;
    LayerSpec const own = bench.spec("decoder", Side::target);
    LayerSpec const spec{.name = own.name,
                         .side = own.side,
                         .model = own.model,
                         .dtype = own.dtype,
                         .kernels = {registries, choices},
                         .parallel = own.parallel,
                         .parameters = own.parameters};
    expect_config_error([&] { Norm::of_stream(spec, "decoder.norm"); },
                        "(decoder.norm, model.norm_kind = \"mine\"); \"layer\" and");
    registries.of<ResidualNorm>().add("mine", 1, std::make_shared<NormsOfMine>(bias));
    Norm::of_stream(spec, "decoder.norm");
    EXPECT_EQ(bench.parameters().find("decoder.norm.bias") != nullptr, bias);
  }
}

}  // namespace
}  // namespace heddle
