#include <gmock/gmock.h>

#include <heddle/core/base/error.hpp>
#include <heddle/core/tasks/corpus_metric.hpp>

namespace heddle {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

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
  EXPECT_THAT([&] { metrics.add("lines", {lines}); },
              ThrowsMessage<ConfigError>(HasSubstr("the metric name 'lines' is taken by lines.so")));
  EXPECT_THAT([&] { metrics.add("line", {}); }, ThrowsMessage<ConfigError>(HasSubstr("without a function")));
  for (char const* name : {"", "a/b", "a b", "loss", "perplexity", "accuracy", "dataset", "samples"}) {
    EXPECT_THAT([&] { metrics.add(name, {lines}); }, ThrowsMessage<ConfigError>(HasSubstr("without a usable name")))
        << name;
  }
  EXPECT_THAT([&] { metrics.of("line", "run.toml:1:1: train.validate_metrics"); },
              ThrowsMessage<ConfigError>(
                  HasSubstr("train.validate_metrics: there is no metric \"line\"; did you mean lines?")));
}

}  // namespace
}  // namespace heddle
