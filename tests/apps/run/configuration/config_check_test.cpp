#include "run/configuration/config_check.hpp"

#include <heddle/io/metrics/metric.hpp>

#include "golden_model.hpp"
#include "test.hpp"

namespace heddle {
namespace {

/// The message of check_config for the overrides; "accepted" without one.
std::string checked(std::vector<std::string> const& overrides, std::optional<int> ranks = std::nullopt) {
  Config const config = parse_config("", "run.toml", overrides);
  TestBench bench(config.model, DType::float32, KernelChoices());
  Registries registries = bench.registries();
  register_tasks(registries.tasks);
  register_schedules(registries.schedules);
  register_metrics(registries.metrics);
  try {
    check_config(config, registries, ranks);
  } catch (ConfigError const& error) {
    return error.what();
  }
  return "accepted";
}

TEST(CheckConfig, RefusesWhatTrainingRefuses) {
  EXPECT_EQ(checked({}), "accepted");
  expect_contains(checked({"model.encoder.cross_attention.head_dim=8"}), "which the encoder does not have");
  expect_contains(checked({"model.decoder.self_attention.heds=2"}), "there is no option");
  expect_contains(checked({"model.decoder_sublayers=[\"self_attention\",\"adapter\"]"}), "adapter");
  expect_contains(checked({"model.activation=GELU"}), "did you mean \"gelu\"?");
  expect_contains(checked({"model.decoder.layer.2.activation=tanh"}), "the function 'tanh'");
  expect_contains(checked({"model.norm_kind=batch"}), "batch");
  expect_contains(checked({"kernels.gemm=cublas"}), "cublas");
  expect_contains(checked({"parallel.tensor=3"}), "heads");
  expect_contains(checked({"parallel.tensor=3"}, 2), "with 2 ranks, these layouts work");
  EXPECT_EQ(checked({"parallel.tensor=2", "parallel.pipeline=2", "parallel.data=3"}), "accepted");
  expect_contains(checked({"model.stacks=[\"decoder\"]", "train.validate_bleu=true"}), "validate_bleu");
  EXPECT_EQ(checked({"model.stacks=[\"decoder\"]"}), "accepted");
}

TEST(CheckConfig, ValidationMeasuresMetricsThatThereAreAndThatTheModelCanHave) {
  EXPECT_EQ(checked({"train.validate_metrics=[\"chrf\",\"ter\"]", "train.best_metric=ter"}), "accepted");
  expect_contains(checked({"train.validate_metrics=[\"crf\"]"}), "there is no metric \"crf\"; did you mean chrf?");
  expect_contains(checked({"model.stacks=[\"decoder\"]", "train.validate_metrics=[\"chrf\"]"}),
                  "or set train.validate_metrics = []");
  EXPECT_EQ(checked({"train.best_metric=bleu"}), "accepted") << "train.validate_bleu is on by default";
  EXPECT_THAT(checked({"train.validate_metrics=[\"chrf\"]", "train.best_metric=bleu"}),
              HasSubstr("train.best_metric = \"bleu\" is not measured in validation"))
      << "where metrics are listed, these are measured";
  expect_contains(checked({"train.best_metric=accuracy"}), "is not measured in validation");
  EXPECT_EQ(checked({"model.stacks=[\"encoder\"]", "train.best_metric=accuracy"}), "accepted");
  EXPECT_EQ(checked({"train.best_metric=nothing", "train.validate_every=0"}), "accepted");
}

TEST(CheckConfig, PatternsMayMatchTheNamesOfJointOrOfSeparateVocabularies) {
  auto const group = [](char const* pattern, bool frozen) {
    return std::vector<std::string>{std::string("optimizer.group.g.parameters=[\"") + pattern + "\"]",
                                    std::string("optimizer.group.g.frozen=") + (frozen ? "true" : "false")};
  };
  EXPECT_EQ(checked(group("embedding.weight", true)), "accepted");
  EXPECT_EQ(checked(group("decoder.embedding.weight", true)), "accepted");
  expect_contains(checked(group("decoder.embeding.weight", true)), "which no parameter's name matches");
  EXPECT_EQ(checked(group("*", false)), "accepted");
  expect_contains(checked(group("*", true)), "every parameter of the model is frozen");
}

TEST(WholeModelOfAConfiguration, HasTheShapesOfTheTrainedModel) {
  Config const config = parse_config("", "run.toml", {"model.positions=learned", "model.max_length=300"});
  TestBench bench(config.model, DType::float32, KernelChoices());
  std::map<std::string, std::string> shapes;
  whole_model(config, bench.registries(), {70, 60, false}).for_each_parameter([&](ParameterDescription const& each) {
    shapes[each.name] = each.placement.global_shape.to_string();
  });
  EXPECT_EQ(shapes["encoder.positions.weight"], Shape({300, config.model.d_model}).to_string());
  EXPECT_EQ(shapes["decoder.embedding.weight"], Shape({60, config.model.d_model}).to_string());
}

}  // namespace
}  // namespace heddle
