#include "run/metrics/metrics.hpp"

#include "test.hpp"

namespace heddle {
namespace {

MetricSeries waves(std::size_t points) {
  MetricSeries series;
  for (std::size_t i = 0; i < points; ++i) {
    series.steps.push_back(static_cast<double>(10 * i));
    series.values.push_back(std::sin(0.37 * static_cast<double>(i)));
  }
  return series;
}

TEST(Downsample, KeepsBothEndsAndTheExtremesOfEachPart) {
  MetricSeries series = waves(10007);
  series.values[5003] = 40;
  series.values[777] = -40;
  constexpr std::size_t buckets = 100;
  MetricSeries const kept = downsample(series, buckets);
  EXPECT_LE(kept.steps.size(), 2 * buckets + 2);
  EXPECT_TRUE(std::ranges::is_sorted(kept.steps, std::less_equal<>()));
  EXPECT_EQ(kept.steps.front(), series.steps.front());
  EXPECT_EQ(kept.steps.back(), series.steps.back());
  double const width = series.steps.back() / static_cast<double>(buckets);
  for (std::size_t bucket = 0; bucket < buckets; ++bucket) {
    double const from = width * static_cast<double>(bucket);
    auto const extremes = [&](MetricSeries const& of) {
      std::vector<double> inside;
      for (std::size_t i = 0; i < of.steps.size(); ++i) {
        if (of.steps[i] > from && of.steps[i] <= from + width) {
          inside.push_back(of.values[i]);
        }
      }
      auto const [min, max] = std::ranges::minmax(inside);
      return std::pair(min, max);
    };
    EXPECT_EQ(extremes(kept), extremes(series)) << "part " << bucket;
  }
}

TEST(Downsample, LeavesShortSeriesAsTheyAre) {
  MetricSeries const series = waves(50);
  EXPECT_EQ(downsample(series, 24).steps, series.steps);
  EXPECT_LT(downsample(series, 20).steps.size(), series.steps.size());
}

TEST(ReadMetrics, TakesEveryNumberAndCountsTornLines) {
  TemporaryDirectory const directory;
  auto const path = directory.path() / "metrics.jsonl";
  std::ofstream(path)
      << R"({"step":10,"train_loss":4.5,"communication":{"tensor.all_reduce":{"operations":2,"bytes":64}}})"
      << "\n"
      << R"({"step":20,"train_loss":4.25,"valid_loss":4,"communication":{"tensor.all_reduce":{"bytes":36}}})"
      << "\n[1]\n{\"step\":\"x\"}\n\n"
      << R"({"step":30,"train_lo)";
  RunMetrics const metrics = read_metrics(path);
  EXPECT_EQ(metrics.unreadable, 4);
  EXPECT_EQ(metrics.series.at("train_loss").values, (std::vector<double>{4.5, 4.25}));
  EXPECT_EQ(metrics.series.at("valid_loss").steps, (std::vector<double>{20}));
  EXPECT_EQ(metrics.series.at("train_loss").at(20), 4.25);
  EXPECT_EQ(metrics.series.at("valid_loss").at(10), std::nullopt);
  EXPECT_EQ(metrics.series.at("valid_loss").at(30), std::nullopt);
  EXPECT_EQ(metrics.series.size(), 2U) << "communication is not a curve";
  EXPECT_THROW(read_metrics(directory.path()), DataError);
}

TEST(ReadMetrics, TakesTheEntropyOfEachAttentionSublayerAndThePassesOverEachCorpus) {
  TemporaryDirectory const directory;
  auto const path =
      directory.write("metrics.jsonl", R"({"step": 10, "attention_entropy": {"encoder.layers.0.self_attention": 0.75}})"
                                       "\n"
                                       R"({"step": 20, "attention_entropy": {"encoder.layers.0.self_attention": 0.5},)"
                                       R"( "corpus_epochs": {"news": 2.5}})"
                                       "\n");
  RunMetrics const metrics = read_metrics(path);
  EXPECT_EQ(metrics.series.at("corpus_epochs.news").at(20), 2.5);
  MetricSeries const& entropy = metrics.series.at("attention_entropy.encoder.layers.0.self_attention");
  EXPECT_EQ(entropy.at(10), 0.75);
  EXPECT_EQ(entropy.at(20), 0.5);
}

TEST(ReadMetrics, TakesTheLastLoadOfEachMixture) {
  TemporaryDirectory const directory;
  auto const path = directory.write(
      "metrics.jsonl",
      R"({"step": 10, "expert_load": {"a": [1, 0], "b": "x"}, "expert_entropy": {"a": 0}, "expert_dropped": {"a": 0.5}})"
      "\n"
      R"({"step": 20, "expert_load": {"a": [0.5, 0.5]}, "expert_entropy": {"a": 1}})"
      "\n"
      R"({"step": 30, "train_loss": 2})"
      "\n");
  RunMetrics const metrics = read_metrics(path);
  EXPECT_EQ(metrics.expert_load, (std::map<std::string, std::vector<double>>{{"a", {0.5, 0.5}}}));
  EXPECT_EQ(metrics.series.at("expert_entropy.a").values, (std::vector<double>{0, 1}));
  EXPECT_EQ(metrics.series.at("expert_dropped.a").at(10), 0.5);
  EXPECT_EQ(to_json(metrics).at("expert_load"), boost::json::parse(R"({"a": [0.5, 0.5]})"));
}

TEST(ReadMetrics, KeepsTheSamplesOfTheFirstAndTheLastValidation) {
  TemporaryDirectory const directory;
  auto const path = directory.path() / "metrics.jsonl";
  std::ofstream file(path);
  for (int step = 1; step <= 95; ++step) {
    file << R"({"step":)" << step << R"(,"valid_bleu":1,"valid_samples":[["one","eins","ein)" << step << R"("]]})"
         << '\n';
  }
  file.close();
  RunMetrics const metrics = read_metrics(path);
  ASSERT_EQ(metrics.samples.size(), 95U);
  EXPECT_EQ(metrics.series.size(), 1U) << "samples are not a curve";
  boost::json::object const json = to_json(metrics);
  boost::json::array const& shown = json.at("samples").as_array();
  ASSERT_EQ(shown.size(), 20U);
  EXPECT_EQ(shown.front().at("step").as_double(), 1);
  EXPECT_EQ(shown.back().at("step").as_double(), 95);
  EXPECT_EQ(shown.back().at("rows"), (boost::json::array{boost::json::array{"one", "eins", "ein95"}}));
}

TEST(ReadMetrics, ShowsWhereANumberIsNotFinite) {
  TemporaryDirectory const directory;
  auto const path = directory.path() / "metrics.jsonl";
  std::ofstream(path) << R"({"step":1,"valid_loss":4,"valid_perplexity":54.6}
{"step":2,"valid_loss":null,"valid_perplexity":null,"gradient_norm":1}
{"step":3,"valid_loss":800,"valid_perplexity":Infinity,"gradient_norm":NaN}
{"step":4,"valid_loss":null,"valid_perplexity":-Infinity}
{"step":1005,"valid_loss":null}
)";
  RunMetrics const metrics = read_metrics(path);
  EXPECT_EQ(metrics.unreadable, 0);
  MetricSeries const& loss = metrics.series.at("valid_loss");
  EXPECT_EQ(loss.values, (std::vector<double>{4, 800}));
  EXPECT_EQ(loss.not_finite, (std::vector<MetricSeries::Stretch>{{2, 2}, {4, 1005}}));
  EXPECT_TRUE(loss.ends_not_finite());
  EXPECT_EQ(metrics.series.at("valid_perplexity").not_finite, (std::vector<MetricSeries::Stretch>{{2, 4}}));
  EXPECT_THAT(describe_not_finite(metrics),
              ElementsAre("gradient_norm is not finite from step 3 on",
                          "valid_loss is not finite from step 2 to 2 and in 1 later stretch, the last one up "
                          "to the end",
                          "valid_perplexity is not finite from step 2 on"));
  EXPECT_EQ(downsample(loss, 0).not_finite, loss.not_finite);
  boost::json::value const drawn = to_json(metrics);
  EXPECT_EQ(drawn.at("series").at("valid_loss").at("not_finite"), boost::json::value({{2.0, 2.0}, {4.0, 1005.0}}));
  EXPECT_EQ(drawn.at("not_finite").as_array().size(), 3U);
}

}  // namespace
}  // namespace heddle
