#include "run/metrics/measure.hpp"

#include <heddle/io/metrics/metric.hpp>

#include "test.hpp"

namespace heddle {
namespace {

Registries with_metrics() {
  Registries registries;
  register_tasks(registries.tasks);
  register_metrics(registries.metrics);
  registries.metrics.add("errors", {[](TranslatedCorpus const&) { return 0.0; }, false});
  return registries;
}

std::vector<std::string> keys_of(std::vector<std::string> const& overrides) {
  std::vector<std::string> keys;
  for (Measure const& measure : measures(parse_config("", "run.toml", overrides), with_metrics())) {
    keys.push_back(measure.key() + (measure.higher_is_better ? " up" : " down"));
  }
  return keys;
}

TEST(Measures, AreTheMetricsOfEachSet) {
  EXPECT_THAT(keys_of({}), ElementsAre("valid_loss down", "valid_bleu up"));
  EXPECT_THAT(keys_of({"train.validate_bleu=false"}), ElementsAre("valid_loss down"));
  EXPECT_THAT(
      keys_of({"train.validate_metrics=[\"errors\",\"chrf\",\"errors\"]", "data.valid_sets.medical=m.h5"}),
      ElementsAre("valid_loss down", "valid_bleu up", "valid_errors down", "valid_chrf up", "valid_loss/medical down",
                  "valid_bleu/medical up", "valid_errors/medical down", "valid_chrf/medical up"));
  EXPECT_THAT(keys_of({"model.stacks=[\"encoder\"]", "train.validate_bleu=false"}),
              ElementsAre("valid_loss down", "valid_accuracy up"));
}

TEST(Measures, TheBestOneIsOfTheFirstSet) {
  Registries const registries = with_metrics();
  Config const config = parse_config("", "run.toml", {"data.valid_sets.a=a.h5", "train.best_metric=bleu"});
  std::vector<Measure> const best = best_measures(config, registries);
  ASSERT_EQ(best.size(), 1U);
  EXPECT_EQ(best.front().key(), "valid_bleu");
  EXPECT_TRUE(best.front().higher_is_better);
  EXPECT_EQ(best_measures(parse_config("", "run.toml", {}), registries).front().key(), "valid_loss");
}

TEST(Measures, OfAListAreInItsOrderAndDifferent) {
  auto const best = [](std::string const& list) {
    return best_measures(parse_config("", "run.toml", {"data.valid_sets.a=a.h5", "train.best_metric=" + list}),
                         with_metrics());
  };
  std::vector<Measure> const two = best(R"(["bleu/a", "loss"])");
  ASSERT_EQ(two.size(), 2U);
  EXPECT_EQ(two[0].key(), "valid_bleu/a");
  EXPECT_EQ(two[1].key(), "valid_loss");
  expect_config_error([&] { best(R"("")"); }, "names no metric; expected \"loss\"");
  expect_config_error([&] { best(R"(["bleu", "bleu"])"); }, "train.best_metric names bleu more than once");
  expect_config_error([&] { best(R"(["bleu", "chrf"])"); }, "= \"chrf\" is not measured in validation");
}

TEST(MeanMetric, WeighsMetricsOfOneDirection) {
  std::string const text =
      "[data]\nvalid = \"v.h5\"\n[data.valid_sets]\na = \"a.h5\"\n[train]\nvalidate_metrics = [\"bleu\", \"chrf\"]\n"
      "best_metric = \"mean\"\n[train.mean_metric]\nbleu = 3\n\"chrf/a\" = 1\n";
  Config const config = parse_config(text, "test");
  EXPECT_EQ(parse_config(to_toml(config), "again").train, config.train);
  Measure const mean = best_measures(config, with_metrics()).front();
  EXPECT_EQ(mean.key(), "valid_mean");
  EXPECT_TRUE(mean.higher_is_better);
  EXPECT_EQ(measures(config, with_metrics()).back().key(), "valid_mean");
  std::vector<MeasuredValue> values{{{"bleu"}, 20}, {{"chrf", "a"}, 60}, {{"chrf"}, 1000}};
  EXPECT_EQ(mean_of(config, values), 30);
  values[0].value = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(std::isnan(mean_of(config, values)));
  EXPECT_TRUE(std::isnan(mean_of(config, {}))) << "a metric that was not measured";
  auto const with_mean = [](std::vector<std::string> overrides) {
    overrides.insert(overrides.end(), {"train.validate_metrics=[\"chrf\"]", "train.mean_metric.chrf=1"});
    return measures(parse_config("", "run.toml", overrides), with_metrics());
  };
  EXPECT_EQ(with_mean({}).back().key(), "valid_mean");
  expect_config_error([&] { with_mean({"train.mean_metric.loss=1"}); },
                      "train.mean_metric has chrf and loss: of one a higher value is better, of the other a lower one");
  expect_config_error([&] { with_mean({"train.mean_metric.ter=1"}); },
                      "train.mean_metric = \"ter\" is not measured in validation");
  expect_config_error([&] { with_mean({"train.mean_metric.loss=0"}); }, "expected a number, above 0");
}

TEST(ValidateCommand, IsAMetricOfTheSetsThatHaveNoListOfTheirOwn) {
  EXPECT_THAT(keys_of({"train.validate_command.comet=comet", "data.valid_sets.a=a.h5", "data.valid_sets.b=b.h5",
                       "data.valid_metrics.b=[\"ter\"]"}),
              ElementsAre("valid_loss down", "valid_bleu up", "valid_comet up", "valid_loss/a down", "valid_bleu/a up",
                          "valid_comet/a up", "valid_loss/b down", "valid_ter/b down"));
  EXPECT_THAT(keys_of({"train.validate_command.comet=comet", "train.validate_metrics=[\"comet\"]",
                       "train.validate_bleu=false"}),
              ElementsAre("valid_loss down", "valid_comet up"));
  expect_config_error([] { keys_of({"train.validate_command.bleu=comet"}); }, "train.validate_command.bleu: ");
  expect_config_error([] { keys_of({"train.validate_command.loss=comet"}); },
                      "train.validate_command.loss: built-in registers the metric 'loss' without a usable name");
  auto const waits = [](std::string const& best, std::string const& mean = "chrf") {
    return is_waited_for(
        parse_config("", "run.toml", {"train.best_metric=" + best, "train.mean_metric." + mean + "=1"}), "comet");
  };
  EXPECT_FALSE(waits("bleu"));
  EXPECT_TRUE(waits("comet"));
  EXPECT_TRUE(waits(R"(["bleu", "comet/a"])"));
  EXPECT_TRUE(waits("bleu", "comet"));
}

TEST(Measures, AreWrittenAsTheFieldDoes) {
  EXPECT_EQ(Measure().name() + " " + Measure().number(1.23456), "validation loss 1.2346");
  Measure const accuracy{"accuracy"};
  EXPECT_EQ(accuracy.name() + " " + accuracy.number(0.5), "masked accuracy 50.00 %");
  EXPECT_EQ((Measure{"chrf++", "medical"}).name(), "medical chrF2++");
  EXPECT_EQ((Measure{"loss", "medical"}).name(), "medical loss");
  EXPECT_EQ((Measure{"errors"}).name(), "errors");
}

TEST(CountValidation, TakesTheBetterValueInTheMeasuresDirection) {
  for (bool const higher : {false, true}) {
    Measure const measure{"metric", "", higher};
    double const sign = higher ? -1 : 1;
    TrainingState state;
    auto const count = [&](std::int64_t step, double value) {
      state.step = step;
      return count_validation(state, measure, sign * value);
    };
    EXPECT_FALSE(count(1, std::numeric_limits<double>::quiet_NaN())) << "not finite";
    EXPECT_TRUE(count(2, 5)) << "the first one";
    EXPECT_TRUE(count(3, 4));
    EXPECT_EQ(state.validations_without_improvement, 0);
    EXPECT_FALSE(count(4, 4)) << "equal is not better";
    EXPECT_FALSE(count(5, 4.5));
    EXPECT_EQ(state.validations_without_improvement, 2);
    EXPECT_EQ(state.best_step, 3);
    EXPECT_EQ(state.best_value, sign * 4);
    EXPECT_TRUE(count(6, -1));
    EXPECT_EQ(state.best_step, 6);
    EXPECT_EQ(state.validations_without_improvement, 0);
  }
}

TEST(EarlyStopping, IsExplainedAlsoWhereNoValueWasFinite) {
  Improvement const errors{.best = {{"errors"}}, .without_better = 2};
  EXPECT_EQ(describe_early_stopping({errors}), "early stopping: errors was not finite in 2 validations");
  Improvement const bleu{.best = {{"bleu"}, 38.2, 1000}, .without_better = 2};
  EXPECT_EQ(describe_early_stopping({bleu}), "early stopping: no better BLEU than 38.20 (step 1,000) in 2 validations");
  EXPECT_EQ(describe_early_stopping({bleu, errors}),
            "early stopping: no better BLEU than 38.20 (step 1,000) in 2 validations; errors was not finite in 2 "
            "validations");
  EXPECT_EQ(Measure{"errors"}.number(-std::numeric_limits<double>::quiet_NaN()), "nan");
}

TEST(ScoreOf, NamesTheMetricThatFails) {
  auto const failing = [](TranslatedCorpus const&) -> double { throw std::runtime_error("no score"); };
  EXPECT_EQ(message_of<Error>([&] {
              score_of({"exact", "exact.so", {failing}}, {});
            }),
            "the metric exact of the plug-in exact.so fails: no score");
  auto const strange = [](TranslatedCorpus const&) -> double { throw 1; };
  EXPECT_THROW(score_of({"exact", "exact.so", {strange}}, {}), Error);
}

}  // namespace
}  // namespace heddle
