#include "golden_model.hpp"
#include "kernel_test_support.hpp"

namespace heddle {
namespace {

ModelConfig model_of(std::int64_t layers) {
  ModelConfig config;
  config.encoder.layers = layers;
  config.decoder.layers = layers;
  config.d_model = 32;
  config.d_ff = 64;
  config.heads = 2;
  config.max_length = 16;
  config.norm = NormPlacement::pre;
  config.positions = Positions::learned;
  return config;
}

/// A model with the initial values of training.
struct StartedModel {
  explicit StartedModel(std::int64_t layers, DType dtype = DType::float64) : test(model_of(layers), sizes, dtype) {
    test.bench.parameters().initialize(1);
  }
  std::vector<double> values(std::string const& name) {
    return heddle::values(test.bench.parameters().find(name)->value);
  }

  static constexpr VocabularySizes sizes{100, 100, true};
  TestModel test;
};

double deviation(std::vector<double> const& values) {
  double squares = 0;
  for (double const value : values) {
    squares += value * value;
  }
  return std::sqrt(squares / static_cast<double>(values.size()));
}

double largest(std::vector<double> const& values) {
  return std::abs(*std::max_element(values.begin(), values.end(),
                                    [](double left, double right) { return std::abs(left) < std::abs(right); }));
}

TEST(InitialValuesTest, ProjectionsAreXavierUniform) {
  StartedModel model(1);
  struct Expected {
    char const* name;
    double fans;
  };
  for (Expected const& expected : {Expected{"encoder.layers.0.self_attention.q.weight", 64},
                                   Expected{"encoder.layers.0.self_attention.k.weight", 64},
                                   Expected{"encoder.layers.0.self_attention.out.weight", 64},
                                   Expected{"decoder.layers.0.cross_attention.v.weight", 64},
                                   Expected{"decoder.layers.0.feed_forward.up.weight", 96},
                                   Expected{"decoder.layers.0.feed_forward.down.weight", 96}}) {
    auto const values = model.values(expected.name);
    double const bound = std::sqrt(6 / expected.fans);
    EXPECT_LE(largest(values), bound) << expected.name;
    EXPECT_GT(largest(values), 0.98 * bound) << expected.name;
    EXPECT_NEAR(deviation(values), bound / std::sqrt(3.0), 0.05 * bound) << expected.name;
  }
}

TEST(InitialValuesTest, EmbeddingsAreNormalAndNormsAreIdentities) {
  StartedModel model(1);
  for (char const* const name : {"embedding.weight", "encoder.positions.weight", "decoder.positions.weight"}) {
    EXPECT_NEAR(deviation(model.values(name)), 1 / std::sqrt(32.0), 0.01) << name;
  }
  for (Parameter const& parameter : model.test.bench.parameters().all()) {
    auto const values = heddle::values(parameter.value);
    std::string const& name = parameter.spec.name;
    if (name.ends_with("norm.weight")) {
      EXPECT_EQ(values, std::vector<double>(values.size(), 1)) << name;
    } else if (name.ends_with("bias")) {
      EXPECT_EQ(values, std::vector<double>(values.size(), 0)) << name;
    } else {
      EXPECT_GT(deviation(values), 0) << name;
    }
  }
}

TEST(InitialValuesTest, DependOnNameAndIndexAlone) {
  StartedModel shallow(1);
  StartedModel deep(2);
  EXPECT_GT(deep.test.bench.parameters().all().size(), shallow.test.bench.parameters().all().size());
  for (Parameter const& parameter : shallow.test.bench.parameters().all()) {
    EXPECT_EQ(heddle::values(parameter.value), deep.values(parameter.spec.name)) << parameter.spec.name;
  }
  EXPECT_NE(deep.values("encoder.layers.0.feed_forward.up.weight"),
            deep.values("encoder.layers.1.feed_forward.up.weight"));
}

TEST(InitialValuesTest, Float32IsFloat64Rounded) {
  StartedModel precise(1);
  StartedModel single(1, DType::float32);
  for (Parameter const& parameter : precise.test.bench.parameters().all()) {
    auto values = heddle::values(parameter.value);
    std::transform(values.begin(), values.end(), values.begin(),
                   [](double value) { return static_cast<double>(static_cast<float>(value)); });
    EXPECT_EQ(single.values(parameter.spec.name), values) << parameter.spec.name;
  }
}

}  // namespace
}  // namespace heddle
