#include <heddle/core/tensor/execution.hpp>

#include "golden_model.hpp"
#include "kernel_test_support.hpp"
#include "test_ids.hpp"

namespace heddle {
namespace {

// bfloat16 has 8 bits: each rounding has an error of up to 0.4 %. Through two layers a side the loss and each
// gradient, as a vector, keep within these tolerances; most of the error comes from values near the corner of a ReLU.
constexpr double loss_tolerance = 0.01;
constexpr double gradient_tolerance = 0.1;

ModelConfig small_model(NormPlacement norm) {
  ModelConfig config;
  config.encoder.layers = 2;
  config.decoder.layers = 2;
  config.d_model = 32;
  config.d_ff = 48;
  config.heads = 4;
  config.max_length = 64;
  config.norm = norm;
  config.dropout = 0.1;
  config.attention_dropout = 0.1;
  config.activation_dropout = 0.1;
  return config;
}

constexpr std::int32_t vocabulary = 37;

Pack some_pack() {
  std::vector<Sample> pairs;
  for (std::int32_t sample = 0; sample < 8; ++sample) {
    Sample pair{sample, {}, {}};
    for (std::int32_t place = 0; place < 5 + 3 * sample; ++place) {
      pair.source.tokens.push_back(3 + (sample * 7 + place * 5) % (vocabulary - 3));
      pair.target.tokens.push_back(3 + (sample * 3 + place * 11) % (vocabulary - 3));
    }
    pairs.push_back(pair);
  }
  return make_pack(pairs, test_ids);
}

/// Uses the values that a run starts from.
struct StartingModel : TestModel {
  StartingModel(NormPlacement norm, DType dtype, KernelChoices const& choices)
      : TestModel(small_model(norm), {vocabulary, vocabulary, true}, dtype, choices) {
    bench.parameters().initialize(1);
  }
};

struct Visit {
  double loss = 0;
  std::map<std::string, std::vector<double>> gradients;
};

Visit visit(NormPlacement norm, DType dtype, KernelChoices const& choices) {
  StartingModel test(norm, dtype, choices);
  Pack const pack = some_pack();
  LayerContext context = test.bench.context(pack, true);
  LossSums const sums = test.model.forward_backward(context, {0.1, 1.0 / static_cast<double>(pack.target_rows.tokens)});
  Visit result{sums.smoothed / static_cast<double>(sums.tokens), {}};
  for (Parameter const& parameter : test.bench.parameters().all()) {
    result.gradients[parameter.spec.name] = values(parameter.gradient);
  }
  return result;
}

double length(std::vector<double> const& vector) {
  double squares = 0;
  for (double const element : vector) {
    squares += element * element;
  }
  return std::sqrt(squares);
}

double distance(std::vector<double> const& left, std::vector<double> const& right) {
  std::vector<double> difference;
  for (std::size_t index = 0; index < left.size(); ++index) {
    difference.push_back(left[index] - right[index]);
  }
  return length(difference);
}

class MixedPrecision : public testing::TestWithParam<NormPlacement> {};

TEST_P(MixedPrecision, LossAndGradientsAreThoseOfFloat64ButForRounding) {
  Visit const exact = visit(GetParam(), DType::float64, reference_kernels());
  for (KernelChoices const& choices : {reference_kernels(), KernelChoices{}}) {
    SCOPED_TRACE("gemm = " + choices.of("gemm"));
    Visit const rounded = visit(GetParam(), DType::bfloat16, choices);
    EXPECT_NEAR(rounded.loss, exact.loss, loss_tolerance * exact.loss);
    double whole = 0;
    for (auto const& [name, gradient] : exact.gradients) {
      whole = std::max(whole, length(gradient));
    }
    for (auto const& [name, gradient] : exact.gradients) {
      // A parameter whose gradient is almost nothing beside the others' (a key's bias has none at all) is judged
      // beside them.
      double const scale = std::max(length(gradient), 0.01 * whole);
      EXPECT_LE(distance(rounded.gradients.at(name), gradient), gradient_tolerance * scale) << name;
    }
  }
}

TEST_P(MixedPrecision, ParametersGradientsAndMomentsStayFloat32) {
  StartingModel test(GetParam(), DType::bfloat16, KernelChoices{});
  Optimizer const optimizer = test.bench.optimizer({});
  EXPECT_EQ(test.bench.parameters().values().dtype(), DType::float32);
  EXPECT_EQ(test.bench.parameters().gradients().dtype(), DType::float32);
  EXPECT_EQ(optimizer.state().at("adam.first_moment").dtype(), DType::float32);
  EXPECT_EQ(optimizer.state().at("adam.second_moment").dtype(), DType::float32);
}

/// The smoothed losses per token of 30 steps of Adam on one batch.
std::vector<double> learn(NormPlacement norm, DType dtype) {
  StartingModel test(norm, dtype, KernelChoices{});
  Optimizer const optimizer = test.bench.optimizer({});
  Pack const pack = some_pack();
  std::vector<double> losses;
  for (std::uint32_t step = 0; step < 30; ++step) {
    test.bench.zero_gradients();
    LayerContext context = test.bench.context(pack, true);
    context.step = step;
    double const tokens = static_cast<double>(pack.target_rows.tokens);
    losses.push_back(test.model.forward_backward(context, {0.1, 1 / tokens}).smoothed / tokens);
    test.bench.update(optimizer, 0.01, step + 1);
  }
  return losses;
}

TEST_P(MixedPrecision, LearnsAsFloat32Does) {
  auto const wide = learn(GetParam(), DType::float32);
  auto const narrow = learn(GetParam(), DType::bfloat16);
  EXPECT_LT(wide.back(), 0.75 * wide.front()) << "the task can be learnt";
  for (std::size_t step = 0; step < wide.size(); ++step) {
    EXPECT_NEAR(narrow[step], wide[step], 0.1 * wide[step]) << "step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Norms, MixedPrecision, testing::Values(NormPlacement::post, NormPlacement::pre),
                         [](auto const& case_info) { return std::string(name_of(case_info.param)); });

}  // namespace
}  // namespace heddle
