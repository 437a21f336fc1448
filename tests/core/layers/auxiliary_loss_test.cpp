#include <heddle/core/config/config.hpp>

#include "golden_model.hpp"
#include "kernel_test_support.hpp"
#include "penalized_projection.hpp"
#include "test_ids.hpp"

namespace heddle {
namespace {

/// A model whose encoder and decoder layers each have a projection with rate * Σ y² as auxiliary loss.
struct PenalizedModel {
  PenalizedModel(std::string const& keys, double rate)
      : config(parse_config(
                   "[model]\nd_model = 6\nd_ff = 8\nheads = 2\nmax_length = 8\nencoder_layers = 1\ndecoder_layers = 2\n"
                   "dropout = 0.2\nencoder_sublayers = [\"self_attention\", \"penalized\"]\n"
                   "decoder_sublayers = [\"penalized\", \"cross_attention\"]\n" +
                       keys,
                   "test")
                   .model),
        bench(config, DType::float64),
        registries(bench.registries()) {
    register_penalized_projection(registries.layers, rate);
    model.emplace(bench.spec("", Side::source), registries.layers, VocabularySizes{9, 9, true});
    bench.allocate();
    bench.zero_gradients();
  }

  LossSums forward_backward(Pack const& pack) {
    LayerContext context = bench.context(pack, true);
    return model->forward_backward(context, {smoothing, scale});
  }
  LossSums forward(Pack const& pack) {
    LayerContext context = bench.context(pack, true);
    return model->forward(context, smoothing);
  }

  static constexpr double smoothing = 0.1;
  static constexpr double scale = 0.25;
  ModelConfig config;
  TestBench bench;
  Registries registries;
  std::optional<Model> model;
};

std::vector<Sample> const penalized_pairs{{4, {5, 6, 5}, {7}}, {9, {3}, {4, 4, 8}}, {2, {7, 3}, {}}};

class AuxiliaryLossTest : public testing::TestWithParam<std::tuple<char const*, char const*>> {
 protected:
  std::string keys() const {
    return fmt::format("norm = \"{}\"\nrecompute = \"{}\"", std::get<0>(GetParam()), std::get<1>(GetParam()));
  }
  Pack pack_ = make_pack(penalized_pairs, test_ids);
};

TEST_P(AuxiliaryLossTest, GradientsAreThoseOfTheWholeLoss) {
  PenalizedModel test(keys(), 0.3);
  test.forward_backward(pack_);
  for (Parameter const& parameter : test.bench.parameters().all()) {
    expect_gradient([&] { return PenalizedModel::scale * test.forward(pack_).smoothed; }, parameter.value,
                    parameter.gradient, parameter.spec.name.c_str());
  }
}

TEST_P(AuxiliaryLossTest, CountsOnceInTheTrainingLoss) {
  PenalizedModel without(keys(), 0);
  LossSums const plain = without.forward_backward(pack_);
  auto const penalty = [&](double rate) {
    PenalizedModel with(keys(), rate);
    LossSums const sums = with.forward_backward(pack_);
    EXPECT_EQ(sums.smoothed, with.forward(pack_).smoothed);
    EXPECT_EQ(sums.negative_log_likelihood, plain.negative_log_likelihood);
    return sums.smoothed - plain.smoothed;
  };
  double const one = penalty(1);
  EXPECT_GT(one, 0.1);
  EXPECT_NEAR(penalty(3), 3 * one, 1e-12 * one);
}

/// Σ over micro-batches, like the cross-entropy.
TEST_P(AuxiliaryLossTest, MicroBatchesAddUp) {
  PenalizedModel whole(keys(), 0.3);
  PenalizedModel parts(keys(), 0.3);
  double const loss = whole.forward_backward(pack_).smoothed;
  double sum = 0;
  for (Sample const& pair : penalized_pairs) {
    sum += parts.forward_backward(make_pack(std::span(&pair, 1), test_ids)).smoothed;
  }
  EXPECT_NEAR(sum, loss, 1e-12 * loss);
  EXPECT_LE(relative_error(values(parts.bench.parameters().gradients()), values(whole.bench.parameters().gradients())),
            1e-12);
}

INSTANTIATE_TEST_SUITE_P(Models, AuxiliaryLossTest,
                         testing::Combine(testing::Values("post", "pre"),
                                          testing::Values("none", "attention", "layer")));

}  // namespace
}  // namespace heddle
