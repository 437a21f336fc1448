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
  EXPECT_EQ(best_measure(config, registries).key(), "valid_bleu");
  EXPECT_TRUE(best_measure(config, registries).higher_is_better);
  EXPECT_EQ(best_measure(parse_config("", "run.toml", {}), registries).key(), "valid_loss");
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
  TrainingState state;
  state.validations_without_improvement = 2;
  EXPECT_EQ(describe_early_stopping(state, {"errors"}), "early stopping: errors was not finite in 2 validations");
  state.best_step = 1000;
  state.best_value = 38.2;
  EXPECT_EQ(describe_early_stopping(state, {"bleu"}),
            "early stopping: no better BLEU than 38.20 (step 1,000) in 2 validations");
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
