#include <heddle/io/samples/batches.hpp>

#include "made_pairs.hpp"
#include "test.hpp"

namespace heddle {
namespace {

/// Pairs whose lengths, tokens and number differ from epoch to epoch, as with a mixture or subword sampling.
class ChangingSamples final : public MadePairs {
 public:
  std::int64_t size(std::int64_t epoch) const override { return 30 + epoch; }
  SampleCost cost(std::int64_t epoch, std::int64_t index) const override {
    return {2 + (7 * index + 3 * epoch) % 13, 2 + (5 * index + epoch) % 11};
  }
  Sample sample(std::int64_t epoch, std::int64_t index, std::int32_t number) const override {
    SampleCost const cost = this->cost(epoch, index);
    auto const id = static_cast<std::int32_t>(3 + epoch * 100 + index);
    return {number, std::vector<std::int32_t>(static_cast<std::size_t>(cost.source - 1), id),
            std::vector<std::int32_t>(static_cast<std::size_t>(cost.target - 1), id)};
  }
};

constexpr BatchPlanner::Limits limits{.batch_tokens = 40, .max_length = 12};

std::vector<std::int32_t> targets(Pack const& pack) {
  return to_host<std::int32_t>(pack.target_output.id);
}

std::int64_t longer_sides(SampleSource const& samples, GlobalBatch const& batch, IndexRange const& range) {
  std::int64_t tokens = 0;
  for (std::int64_t place = range.begin; place < range.end; ++place) {
    SampleId const& sample = batch.samples[static_cast<std::size_t>(place)];
    tokens += samples.cost(sample.epoch, sample.index).longer();
  }
  return tokens;
}

/// The cursor of a planner of one source.
SampleCursor place_of(BatchPlanner const& planner) {
  return planner.cursor().corpora.front();
}

void seek(BatchPlanner& planner, std::int64_t epoch, std::int64_t position) {
  planner.seek({.corpora = {{.epoch = epoch, .position = position}}});
}

TEST(BatchPlannerTest, AnEpochDealsEveryUsablePairOnce) {
  ChangingSamples const samples;
  BatchPlanner planner(samples, limits, 5);
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    std::multiset<std::int64_t> dealt;
    std::int64_t usable = 0;
    for (std::int64_t index = 0; index < samples.size(epoch); ++index) {
      usable += samples.cost(epoch, index).longer() <= limits.max_length ? 1 : 0;
    }
    while (static_cast<std::int64_t>(dealt.size()) < usable) {
      GlobalBatch const batch = planner.next();
      ASSERT_EQ(batch.samples.back().epoch, epoch);
      EXPECT_LE(longer_sides(samples, batch, {0, static_cast<std::int64_t>(batch.samples.size())}), 40);
      BatchTokens counted;
      for (SampleId const& sample : batch.samples) {
        EXPECT_EQ(sample.epoch, epoch);
        dealt.insert(sample.index);
        SampleCost const cost = samples.cost(epoch, sample.index);
        EXPECT_LE(cost.longer(), limits.max_length);
        counted.target += cost.target;
        counted.all += cost.source + cost.target;
      }
      EXPECT_EQ(batch.tokens.target, counted.target);
      EXPECT_EQ(batch.tokens.all, counted.all);
    }
    EXPECT_EQ(std::set(dealt.begin(), dealt.end()).size(), dealt.size());
    EXPECT_EQ(samples.totals(epoch, limits.max_length).left_out, samples.size(epoch) - usable);
    EXPECT_EQ(samples.totals(epoch, limits.max_length).usable, usable);
  }
}

TEST(BatchPlannerTest, AfterSeekTheSameBatchesFollow) {
  ChangingSamples const samples;
  BatchPlanner planner(samples, limits, 5);
  for (int batch = 0; batch < 13; ++batch) {
    BatchPlanner other(samples, limits, 5);
    other.seek(planner.cursor());
    EXPECT_EQ(other.next().samples, planner.next().samples);
  }
  EXPECT_GT(place_of(planner).epoch, 0);
  EXPECT_GE(planner.epochs(), static_cast<double>(place_of(planner).epoch));
  seek(planner, 0, 0);
  double before = planner.epochs();
  EXPECT_EQ(before, 0);
  while (place_of(planner).epoch < 2) {
    planner.next();
    EXPECT_GT(planner.epochs(), before);
    EXPECT_LE(planner.epochs(), static_cast<double>(place_of(planner).epoch) + 1);
    before = planner.epochs();
  }
  expect_data_error([&] { seek(planner, 0, 31); }, "epoch 0, window 0, sample 31 is not a place");
  EXPECT_THROW(seek(planner, -1, 0), DataError);
}

/// 1,000 samples of one token each in windows of 30, but for the usable ones.
class WindowedSamples final : public SampleSource {
 public:
  /// The samples of [unusable.begin, unusable.end) are too long from epoch 1 on.
  explicit WindowedSamples(IndexRange unusable) : unusable_(unusable) {}

  std::int64_t windows(std::int64_t /*epoch*/) const override { return order_.windows(); }
  std::vector<std::int64_t> window(std::int64_t epoch, std::int64_t window) const override {
    return order_.window(epoch, window);
  }
  SampleCost cost(std::int64_t epoch, std::int64_t index) const override {
    bool const too_long = epoch > 0 && index >= unusable_.begin && index < unusable_.end;
    return {too_long ? 100 : 1 + index % 5, 1};
  }
  void read(std::int64_t, std::span<std::int64_t const>, std::int32_t, PackFields&) const override {}
  SampleTotals totals(std::int64_t, std::int64_t) const override { return {.usable = 1000}; }
  std::string describe() const override { return "1000 samples"; }

 private:
  IndexRange unusable_;
  static constexpr WindowOrder::Sizes sizes{.block_items = 10, .window_blocks = 3};
  WindowOrder order_{1000, 7, sizes};
};

TEST(BatchPlannerTest, WindowsFollowEachOtherInABatchAndEpochsDoNot) {
  WindowedSamples const samples(IndexRange{0, 0});
  BatchPlanner planner(samples, limits, 5);
  std::vector<std::int64_t> previous;
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<std::int64_t> dealt;
    while (dealt.size() < 1000) {
      BatchPlanner other(samples, limits, 5);
      other.seek(planner.cursor());
      GlobalBatch const batch = planner.next();
      EXPECT_EQ(other.next().samples, batch.samples);
      EXPECT_EQ(other.cursor(), planner.cursor());
      for (SampleId const& sample : batch.samples) {
        ASSERT_EQ(sample.epoch, epoch);
        dealt.push_back(sample.index);
      }
      std::int64_t const tokens = longer_sides(samples, batch, {0, std::ssize(batch.samples)});
      EXPECT_LE(tokens, limits.batch_tokens);
      if (dealt.size() < 1000) {
        EXPECT_GT(tokens, limits.batch_tokens - 5) << "a batch ends with a window";
      }
    }
    EXPECT_EQ(std::set(dealt.begin(), dealt.end()).size(), 1000U);
    EXPECT_NE(dealt, previous);
    previous = dealt;
  }
  EXPECT_THROW(seek(planner, 0, std::int64_t{34} << 32), DataError);
  EXPECT_THROW(seek(planner, 0, 31), DataError);
}

TEST(BatchPlannerTest, WindowsWithoutUsableSamplesArePassed) {
  WindowedSamples const few(IndexRange{10, 1000});
  BatchPlanner planner(few, limits, 5);
  seek(planner, 1, 0);
  for (std::int64_t epoch = 1; epoch < 5; ++epoch) {
    GlobalBatch const batch = planner.next();
    EXPECT_EQ(batch.samples.front().epoch, epoch);
    EXPECT_EQ(batch.samples.size(), 10U);
  }
  WindowedSamples const none(IndexRange{0, 1000});
  BatchPlanner without(none, limits, 5);
  seek(without, 1, 0);
  expect_data_error([&] { without.next(); }, "epoch 2: all 1000 samples are longer");
}

TEST(BatchPlannerTest, WhereNoPairIsShortEnoughItThrows) {
  ChangingSamples const samples;
  expect_data_error([&] { BatchPlanner(samples, {.batch_tokens = 40, .max_length = 1}, 5); },
                    "all 30 sentence pairs are longer than model.max_length = 1");
  Mixture const mixture(std::vector<Corpus>{
      {.samples = std::shared_ptr<SampleSource const>(std::shared_ptr<void>(), &samples), .name = "news"}});
  expect_data_error([&] { BatchPlanner(mixture, {.batch_tokens = 40, .max_length = 1}, 5); },
                    "data.corpus.news: all 30 sentence pairs");
  EXPECT_TRUE(all_samples(samples, 1).samples.empty());
}

TEST(BatchCutTest, CutsFollowTheCosts) {
  std::vector<std::int64_t> const costs{3, 4, 2, 9, 1, 1, 1};
  EXPECT_THAT(cut_by_tokens(costs, 7),
              ElementsAre(IndexRange{0, 2}, IndexRange{2, 3}, IndexRange{3, 4}, IndexRange{4, 7}));
  EXPECT_THAT(cut_evenly(costs, 2), ElementsAre(IndexRange{0, 3}, IndexRange{3, 7}));
  EXPECT_THAT(cut_evenly(costs, 1), ElementsAre(IndexRange{0, 7}));
  EXPECT_THAT(cut_evenly({}, 3), ElementsAre(IndexRange{}, IndexRange{}, IndexRange{}));
  EXPECT_TRUE(cut_by_tokens({}, 7).empty());
}

TEST(SampledMicroBatchesTest, TheRanksSharesAreTheWholeBatchInOrder) {
  ChangingSamples const samples;
  BatchPlanner planner(samples, {.batch_tokens = 150, .max_length = 12}, 5);
  seek(planner, 1, 0);
  GlobalBatch const batch = planner.next();
  SampledMicroBatches const whole(samples, batch, {.max_tokens = 1000});
  ASSERT_EQ(whole.count(), 1);
  Pack const expected = whole.micro_batch(0);
  EXPECT_EQ(expected.target_rows.tokens, batch.tokens.target);
  for (int ranks = 1; ranks <= 4; ++ranks) {
    for (bool const equal : {false, true}) {
      std::vector<std::int32_t> found;
      std::vector<std::int32_t> numbers;
      for (int rank = 0; rank < ranks; ++rank) {
        SampledMicroBatches const mine(samples, batch, {.max_tokens = 25, .data = {rank, ranks}, .equal = equal});
        EXPECT_EQ(mine.tokens().target, batch.tokens.target);
        for (std::int64_t index = 0; index < mine.count(); ++index) {
          Pack const pack = mine.micro_batch(index);
          auto const ids = targets(pack);
          EXPECT_EQ(targets(mine.micro_batch(index)), ids) << "asked again";
          found.insert(found.end(), ids.begin(), ids.end());
          auto const sample = to_host<std::int32_t>(pack.target_rows.sample);
          numbers.insert(numbers.end(), sample.begin(), sample.end());
        }
      }
      EXPECT_EQ(found, targets(expected)) << ranks << " ranks";
      EXPECT_EQ(numbers, to_host<std::int32_t>(expected.target_rows.sample)) << ranks << " ranks";
    }
  }
}

TEST(SampledMicroBatchesTest, EqualMicroBatchesAreAsManyAndDifferLess) {
  ChangingSamples const samples;
  GlobalBatch const batch = all_samples(samples, 12);
  SampledMicroBatches const full(samples, batch, {.max_tokens = 60});
  SampledMicroBatches const equal(samples, batch, {.max_tokens = 60, .equal = true});
  ASSERT_EQ(equal.count(), full.count());
  auto const min = [](MicroBatchSource const& batches) {
    std::int64_t tokens = batches.tokens().target;
    for (std::int64_t index = 0; index < batches.count(); ++index) {
      tokens = std::min(tokens, batches.micro_batch(index).target_rows.tokens);
    }
    return tokens;
  };
  EXPECT_GT(min(equal), min(full));
}

TEST(ValidationCutTest, MicroBatchesAreAMultipleOfEightAndAboutEqual) {
  GlobalBatch batch;
  std::vector<std::int64_t> costs;
  for (std::int64_t index = 0; index < 1000; ++index) {
    costs.push_back(5 + index * 7 % 31);
    batch.costs.push_back({.source = costs.back(), .target = 4});
  }
  std::int64_t const total = std::accumulate(costs.begin(), costs.end(), std::int64_t{0});
  auto const cut = [&](std::int64_t max_tokens) {
    MicroBatchCut const result = validation_cut(batch, max_tokens, {1, 2});
    EXPECT_LE(result.max_tokens, max_tokens);
    EXPECT_EQ(result.context.decoder().rank, 1);
    return cut_by_tokens(costs, result.max_tokens);
  };
  for (std::int64_t const max_tokens : {2000, 2100, 4096, 100000}) {
    auto const ranges = cut(max_tokens);
    ASSERT_EQ(ranges.size(), max_tokens < 2600 ? 16U : 8U);
    for (IndexRange const& range : ranges) {
      auto const part =
          std::span(costs).subspan(static_cast<std::size_t>(range.begin), static_cast<std::size_t>(range.count()));
      std::int64_t const tokens = std::accumulate(part.begin(), part.end(), std::int64_t{0});
      double const even = static_cast<double>(total) / static_cast<double>(ranges.size());
      EXPECT_NEAR(static_cast<double>(tokens), even, even / 10);
    }
  }
  batch.costs.resize(60);
  costs.resize(60);
  EXPECT_EQ(cut(4096).size(), 3U) << "no smaller than 512 tokens";
  EXPECT_EQ(cut(100).size(), cut_by_tokens(costs, 100).size()) << "as small as is asked for";
  batch.costs.clear();
  costs.clear();
  EXPECT_TRUE(cut(4096).empty());
}

TEST(BatchPlannerTest, EndsAfterItsEpochs) {
  ChangingSamples const samples;
  BatchPlanner planner(samples, {.batch_tokens = 40, .max_length = 12, .epochs = 2}, 5);
  std::int64_t steps = 0;
  for (; !planner.exhausted(); ++steps) {
    EXPECT_LT(planner.cursor().corpora.front().epoch, 2);
    planner.next();
  }
  EXPECT_EQ(planner.epochs(), 2);
  EXPECT_GT(steps, 2);
}

}  // namespace
}  // namespace heddle
