#include <cmath>
#include <heddle/core/config/config.hpp>

#include "golden_model.hpp"
#include "kernel_test_support.hpp"
#include "test_ids.hpp"

namespace heddle {
namespace {

std::vector<Sample> const pairs{{4, {5, 6, 5}, {7}}, {9, {3}, {4, 4, 8}}, {2, {7, 3}, {}}};

/// Keys of a small model whose second encoder and first decoder layer have mixtures with these options.
ModelConfig model_with(std::string const& options, std::string const& keys = "") {
  std::string const layers =
      "\n[model.encoder.layer.2]\nsublayers = [\"self_attention\", \"mixture_of_experts\"]\n" +
      fmt::format("mixture_of_experts = {{ {} }}\n", options) +
      "[model.decoder.layer.1]\nsublayers = [\"self_attention\", \"cross_attention\", \"mixture_of_experts\"]\n" +
      fmt::format("mixture_of_experts = {{ {} }}\n", options);
  return parse_config(
             "[model]\nd_model = 6\nd_ff = 8\nheads = 2\nmax_length = 8\nencoder_layers = 2\ndecoder_layers = 2\n"
             "dropout = 0.2\nactivation_dropout = 0.1\n" +
                 keys + layers,
             "test")
      .model;
}

struct MixtureModel {
  explicit MixtureModel(ModelConfig const& config) : test(config, {9, 9, true}, DType::float64) {}

  LossSums forward_backward(Pack const& pack) {
    LayerContext context = test.bench.context(pack, true);
    return test.model.forward_backward(context, {smoothing, scale});
  }
  LossSums forward(Pack const& pack, bool training = true) {
    LayerContext context = test.bench.context(pack, training);
    return test.model.forward(context, smoothing);
  }

  static constexpr double smoothing = 0.1;
  static constexpr double scale = 0.25;
  TestModel test;
};

class MixtureGradientTest : public testing::TestWithParam<std::tuple<char const*, char const*>> {};

/// The loss has both auxiliary losses once, also where the layer is computed again.
TEST_P(MixtureGradientTest, GradientsAreThoseOfTheWholeLoss) {
  auto const& [options, keys] = GetParam();
  MixtureModel model(model_with(options, keys));
  Pack const pack = make_pack(pairs, test_ids);
  double const loss = model.forward_backward(pack).smoothed;
  EXPECT_EQ(loss, model.forward(pack).smoothed);
  for (Parameter const& parameter : model.test.bench.parameters().all()) {
    expect_gradient([&] { return MixtureModel::scale * model.forward(pack).smoothed; }, parameter.value,
                    parameter.gradient, parameter.spec.name.c_str());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Mixtures, MixtureGradientTest,
    testing::Values(std::tuple{"experts = 4, load_balance_loss = 0.3, router_z_loss = 0.1", ""},
                    std::tuple{"experts = 3, experts_per_token = 1, load_balance_loss = 0.5", "recompute = \"layer\""},
                    std::tuple{"experts = 3, scoring = \"sigmoid\", load_balance_loss = 0.4, shared_d_ff = 4",
                               "norm = \"pre\"\nactivation = \"swiglu\"\nbiases = false"},
                    std::tuple{"experts = 4, balance_bias_rate = 0.1, load_balance_loss = 0.3",
                               "recompute = \"layer\""},
                    std::tuple{"experts = 3, capacity_factor = 0.7, load_balance_loss = 0.4, router_z_loss = 0.2",
                               "norm = \"pre\"\nactivation = \"geglu\""}));

/// The choices of a training pass, layer by layer: of each expert, then the dropped ones.
std::vector<std::vector<double>> counted(MixtureModel& model) {
  std::vector<std::vector<double>> found;
  for (ChoiceCounts const& layer : model.test.bench.parameters().choices()) {
    found.push_back(values(layer.sums));
  }
  return found;
}

TEST(MixtureOfExpertsTest, ATrainingPassCountsItsChoicesOnce) {
  Pack const pack = make_pack(pairs, test_ids);
  for (char const* const keys : {"", "recompute = \"layer\""}) {
    MixtureModel model(model_with("experts = 3, capacity_factor = 0.5", keys));
    EXPECT_EQ(counted(model), (std::vector<std::vector<double>>{{0, 0, 0, 0}, {0, 0, 0, 0}}));
    model.forward(pack, false);
    EXPECT_EQ(counted(model).front(), (std::vector<double>{0, 0, 0, 0})) << "validation does not count";
    model.forward_backward(pack);
    auto const once = counted(model);
    // Nine source and seven target tokens with two choices each; an expert takes ⌈0.5 * 2 * 9 / 3⌉ and ⌈0.5 * 2 * 7 /
    // 3⌉.
    EXPECT_EQ(once[0][0] + once[0][1] + once[0][2], 18) << keys;
    EXPECT_EQ(once[1][0] + once[1][1] + once[1][2], 14) << keys;
    for (auto const& [layer, capacity] : {std::pair{0, 3.0}, {1, 3.0}}) {
      auto const& counts = once[static_cast<std::size_t>(layer)];
      double dropped = 0;
      for (std::size_t expert = 0; expert < 3; ++expert) {
        dropped += std::max(0.0, counts[expert] - capacity);
      }
      EXPECT_EQ(counts[3], dropped) << keys;
      EXPECT_GT(dropped, 0) << keys;
    }
    model.forward_backward(pack);
    EXPECT_EQ(counted(model)[0][3], 2 * once[0][3]) << keys;
  }
}

TEST(MixtureOfExpertsTest, TheLossesAreProportionalToTheirFactors) {
  Pack const pack = make_pack(pairs, test_ids);
  for (char const* const factor : {"load_balance_loss", "router_z_loss"}) {
    auto const sums = [&](double value) {
      std::string const other = factor == std::string("router_z_loss") ? ", load_balance_loss = 0.0" : "";
      return MixtureModel(model_with(fmt::format("{} = {:.1f}{}", factor, value, other))).forward(pack);
    };
    double const none = sums(0).smoothed;
    double const one = sums(1).smoothed - none;
    EXPECT_GT(one, 1) << factor << ": a sum over 9 source and 7 target tokens";
    EXPECT_NEAR(sums(3).smoothed - none, 3 * one, 1e-12 * one) << factor;
    EXPECT_EQ(sums(1).negative_log_likelihood, sums(0).negative_log_likelihood) << factor;
  }
}

/// The values of the parameters of one layer, by the ends of their names, and its output.
struct OneLayer {
  OneLayer(std::string const& registered, std::string const& options, std::string const& keys = "")
      : config(parse_config("[model]\nd_model = 6\nd_ff = 8\nactivation_dropout = 0.0\n" + keys, "test").model),
        bench(config, DType::float64) {
    LayerSpec spec = bench.spec("layer", Side::source);
    Config const given = parse_config("[model.encoder]\n" + registered + " = { " + options + " }\n", "test");
    spec.options = layer_options(given.model.encoder, "encoder", 0, registered);
    layer = bench.registries().layers.build(registered, spec);
    bench.allocate();
  }
  Parameter& parameter(std::string const& name) { return *bench.parameters().find("layer." + name); }
  std::vector<double> output(Pack const& pack, bool training = false) {
    LayerContext context = bench.context(pack, training);
    Saved saved;
    Tensor const input = random_tensor(DType::float64, Shape{pack.source_rows.tokens, 6}, 3);
    return values(layer->forward(context, {input, {}}, saved).hidden);
  }

  ModelConfig config;
  TestBench bench;
  std::unique_ptr<Layer> layer;
};

/// Copies the feed-forward layer's parameters to each expert.
void copy_to_experts(OneLayer& from, OneLayer& mixture, std::vector<std::string> const& names) {
  for (std::string const& name : names) {
    Parameter const& many = mixture.parameter(name);
    Tensor const rows = many.value.reshaped({many.local_shape[0], many.value.size() / many.local_shape[0]});
    for (std::int64_t expert = 0; expert < rows.dim(0); ++expert) {
      copy_from_doubles(rows.rows(expert, 1), values(from.parameter(name).value));
    }
  }
  mixture.bench.parameters().bump_versions();
}

TEST(MixtureOfExpertsTest, EqualExpertsAreAFeedForwardLayer) {
  Pack const pack = make_pack(pairs, test_ids);
  for (std::string const activation : {"relu", "swiglu"}) {
    std::string const keys = fmt::format("activation = \"{}\"\n", activation);
    OneLayer plain("feed_forward", "", keys);
    std::vector<std::string> names{"up.weight", "up.bias", "down.weight", "down.bias"};
    if (activation == "swiglu") {
      names.insert(names.end(), {"gate.weight", "gate.bias"});
    }
    for (char const* const options : {"experts = 1, experts_per_token = 1", "experts = 5, experts_per_token = 3"}) {
      OneLayer mixture("mixture_of_experts", options, keys);
      copy_to_experts(plain, mixture, names);
      EXPECT_LE(relative_error(mixture.output(pack), plain.output(pack)), 1e-12) << activation << ", " << options;
    }
  }
}

TEST(MixtureOfExpertsTest, ABiasChoosesTheExpertsInEveryPass) {
  Pack const pack = make_pack(pairs, test_ids);
  OneLayer plain("mixture_of_experts", "experts = 4, experts_per_token = 1");
  OneLayer biased("mixture_of_experts", "experts = 4, experts_per_token = 1, balance_bias_rate = 0.0");
  Parameter& bias = biased.parameter("router.balance_bias");
  copy_from_doubles(bias.value, {0, 0, 0, 0});
  EXPECT_EQ(biased.output(pack), plain.output(pack));
  for (double const third : {-9.0, 9.0}) {
    copy_from_doubles(bias.value, {0, 0, third, 0});
    EXPECT_NE(biased.output(pack), plain.output(pack));
    EXPECT_EQ(biased.output(pack), biased.output(pack, true));
  }
  // All tokens are the third expert's: another one's matrix does not count.
  std::vector<double> const output = biased.output(pack);
  Parameter const& up = biased.parameter("up.weight");
  copy_from_doubles(up.value.rows(0, 2).reshaped({96}), std::vector<double>(96, 5));
  biased.bench.parameters().bump_versions();
  EXPECT_EQ(biased.output(pack), output);
}

TEST(MixtureOfExpertsTest, ABiasGrowsForAnExpertWithLessThanTheMean) {
  OneLayer layer("mixture_of_experts", "experts = 4, balance_bias_rate = 0.25");
  ChoiceCounts const& counts = layer.bench.parameters().choices().front();
  copy_from_doubles(counts.bias->value, {0, 0, 0, 0});
  balance(counts, std::vector<double>{10, 0, 5, 5});
  balance(counts, std::vector<double>{16777217, 16777216, 16777216, 16777216});
  EXPECT_EQ(values(layer.parameter("router.balance_bias").value), (std::vector<double>{-0.5, 0.5, 0.25, 0.25}));
}

TEST(MixtureOfExpertsTest, TheEntropyOfALoadIsOneWhereItIsEven) {
  EXPECT_NEAR((ExpertLoad{"", {3, 3, 3}, 0}.entropy()), 1, 1e-12);
  EXPECT_EQ((ExpertLoad{"", {0, 7, 0}, 0}.entropy()), 0);
  EXPECT_NEAR((ExpertLoad{"", {1, 1, 0, 0}, 0}.entropy()), 0.5, 1e-12);
  EXPECT_EQ((ExpertLoad{"", {4}, 0}.entropy()), 1) << "one expert";
}

TEST(MixtureOfExpertsTest, TokensAreDroppedInTrainingOnly) {
  Pack const pack = make_pack(pairs, test_ids);
  OneLayer all("mixture_of_experts", "experts = 4");
  OneLayer some("mixture_of_experts", "experts = 4, capacity_factor = 0.2");
  EXPECT_EQ(some.output(pack), all.output(pack));
  std::vector<double> const trained = some.output(pack, true);
  EXPECT_EQ(all.output(pack, true), all.output(pack));
  EXPECT_NE(trained, all.output(pack));
  int dropped = 0;
  for (std::size_t row = 0; row < trained.size(); row += 6) {
    dropped += std::all_of(trained.begin() + static_cast<std::ptrdiff_t>(row),
                           trained.begin() + static_cast<std::ptrdiff_t>(row + 6), [](double v) { return v == 0; });
  }
  // Each of the experts has one place: of 9 tokens at most 4 have an output.
  EXPECT_GE(dropped, 5);
}

TEST(MixtureOfExpertsTest, EachExpertStartsAsAMatrixOfItsOwn) {
  ModelConfig const config = parse_config("[model]\nd_model = 60\nd_ff = 80\n", "test").model;
  TestBench bench(config, DType::float32);
  LayerSpec const spec = bench.spec("layer", Side::source);
  auto const layer = bench.registries().layers.build("mixture_of_experts", spec);
  bench.parameters().allocate(DType::float32);
  bench.parameters().initialize(1);
  Parameter const& up = *bench.parameters().find("layer.up.weight");
  EXPECT_EQ(up.global_shape(), (Shape{8, 80, 60}));
  double const bound = std::sqrt(6.0 / (80 + 60));
  std::vector<double> previous;
  for (std::int64_t expert = 0; expert < 8; ++expert) {
    std::vector<double> const matrix = values(up.value.rows(expert, 1).reshaped({80 * 60}));
    double const largest = std::abs(*std::ranges::max_element(matrix, {}, [](double v) { return std::abs(v); }));
    EXPECT_LE(largest, bound);
    EXPECT_GT(largest, 0.99 * bound);
    EXPECT_NE(matrix, previous);
    previous = matrix;
  }
}

TEST(MixtureOfExpertsTest, OptionsThatCannotWorkAreRefused) {
  auto const refusal = [](std::string const& options, std::string const& keys = "") {
    return [=] { OneLayer("mixture_of_experts", options, keys); };
  };
  expect_config_error(refusal("experts = 2, experts_per_token = 3"), "experts_per_token = 3: at most the 2 experts");
  expect_config_error(refusal("experts_per_token = 1, normalize_weights = true"), "the router would learn nothing");
  expect_config_error(refusal("", "[adapter]\nrank = 2\ntargets = [\"*\"]\n"), "has no adapters");
  TestBench const bench(ModelConfig(), DType::float64);
  LayerTraits const& traits = bench.registries().layers.at("mixture_of_experts", "").traits;
  LayerOptions const capacity({{"capacity_factor", {.value = 1.0, .origin = "test"}}}, "mixture");
  ModelConfig keys;
  EXPECT_EQ(traits.unsupported_reason(keys, capacity, {.tensor = 2}), std::nullopt);
  expect_contains(traits.unsupported_reason(keys, capacity, {.context = 2}).value_or(""), "parallel.context");
  keys.d_ff = 9;
  expect_contains(traits.unsupported_reason(keys, {}, {.tensor = 2}).value_or(""), "d_ff = 9");
  EXPECT_EQ(traits.unsupported_reason(keys, {}, {.context = 2}), std::nullopt);
}

}  // namespace
}  // namespace heddle
