#include <heddle/core/tasks/corpus_metric.hpp>

#include "test.hpp"

namespace heddle {
namespace {

double lines(TranslatedCorpus const& corpus) {
  return static_cast<double>(corpus.hypotheses.size());
}

TEST(MetricRegistry, NamesAreKeysOfMetricsAndUnique) {
  MetricRegistry metrics;
  metrics.set_origin("lines.so");
  metrics.add("lines", {lines, false});
  EXPECT_EQ(metrics.of("lines", "here").origin, "lines.so");
  EXPECT_FALSE(metrics.of("lines", "here").metric.higher_is_better);
  std::vector<std::string> const text{"a", "b"};
  EXPECT_EQ(metrics.of("lines", "here").metric.score({text, text, {}}), 2);
  expect_config_error([&] { metrics.add("lines", {lines}); }, "the metric name 'lines' is taken by lines.so");
  expect_config_error([&] { metrics.add("line", {}); }, "without a function");
  for (char const* name : {"", "a/b", "a b", "loss", "perplexity", "accuracy", "dataset", "samples"}) {
    SCOPED_TRACE(name);
    expect_config_error([&] { metrics.add(name, {lines}); }, "without a usable name");
  }
  expect_config_error([&] { metrics.of("line", "run.toml:1:1: train.validate_metrics"); },
                      "train.validate_metrics: there is no metric \"line\"; did you mean lines?");
}

}  // namespace
}  // namespace heddle
