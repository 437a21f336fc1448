#include <heddle/core/parallel/host_values.hpp>
#include <heddle/io/samples/batch_reader.hpp>

#include "dist_fixture.hpp"
#include "made_pairs.hpp"

namespace heddle {
namespace {

/// Counts what is read; sentence `broken` cannot be.
class CountingSamples final : public MadePairs {
 public:
  std::int64_t size(std::int64_t /*epoch*/) const override { return 40; }
  SampleCost cost(std::int64_t /*epoch*/, std::int64_t index) const override {
    ++asked;
    return {2 + index % 5, 2 + index % 3};
  }
  Sample sample(std::int64_t /*epoch*/, std::int64_t index, std::int32_t number) const override {
    ++asked;
    if (index == broken) {
      throw DataError("sentence 17 is broken");
    }
    auto const id = static_cast<std::int32_t>(3 + index);
    Sample sample{number, std::vector<std::int32_t>(static_cast<std::size_t>(1 + index % 5), id),
                  std::vector<std::int32_t>(static_cast<std::size_t>(1 + index % 3), id)};
    if (index % 2 == 0) {
      sample.alignment = {{static_cast<std::int32_t>(index % 5), 0}};
      sample.target.weights = {0.25F * static_cast<float>(index)};
    }
    return sample;
  }

  mutable std::int64_t asked = 0;
  std::int64_t broken = -1;
};

using BatchReaderTest = DistTest;

constexpr BatchPlanner::Limits limits{.batch_tokens = 40, .max_length = 100};
constexpr MicroBatchCut cut{.max_tokens = 12};

std::vector<std::int32_t> host(Tensor const& tensor) {
  return tensor.empty() ? std::vector<std::int32_t>() : to_host<std::int32_t>(tensor);
}

TEST_F(BatchReaderTest, RanksGetFromOneWhatEachWouldRead) {
  CountingSamples const alone;
  BatchPlanner planner(alone, limits, 7);
  CountingSamples const shared;
  BatchReader reader({shared, limits, 7}, cut, world_);
  std::int64_t const asked_before = shared.asked;
  for (int step = 0; step < 12; ++step) {
    if (step == 5) {
      planner.seek({.corpora = {{.position = 3}}});
      reader.seek({.corpora = {{.position = 3}}});
    }
    SampledMicroBatches const expected(alone, planner.next(), cut);
    MicroBatchSource const& batch = reader.next();
    if (step != 2) {  // step 3's batch is read when it is asked for; what was read ahead of a seek is dropped
      reader.read_ahead();
    }
    if (world_.rank() == 0) {
      EXPECT_EQ(reader.progress().cursor, planner.cursor());
      EXPECT_EQ(reader.progress().epochs, planner.epochs());
      EXPECT_EQ(reader.progress().corpus_epochs, planner.corpus_epochs());
    }
    ASSERT_EQ(batch.count(), expected.count());
    EXPECT_EQ(batch.tokens().all, expected.tokens().all);
    EXPECT_EQ(batch.tokens().target, expected.tokens().target);
    for (std::int64_t index = 0; index < batch.count(); ++index) {
      Pack const pack = batch.micro_batch(index);
      Pack const wanted = expected.micro_batch(index);
      EXPECT_EQ(host(pack.source.id), host(wanted.source.id));
      EXPECT_EQ(host(pack.target_output.id), host(wanted.target_output.id));
      EXPECT_EQ(host(pack.target_rows.sample), host(wanted.target_rows.sample));
      EXPECT_EQ(to_host<float>(pack.target_output.weight), to_host<float>(wanted.target_output.weight));
      EXPECT_EQ(host(pack.alignment.begin), host(wanted.alignment.begin));
      EXPECT_EQ(host(pack.alignment.position), host(wanted.alignment.position));
    }
  }
  reader.seek({});  // ends what is read ahead
  EXPECT_EQ(shared.asked > asked_before, world_.rank() == 0);
}

TEST_F(BatchReaderTest, RanksKnowTheCorpusOfEachSample) {
  auto const samples = std::make_shared<CountingSamples>();
  Mixture const mixture({{samples, "news", 3}, {samples, "web", 1}});
  BatchPlanner planner(mixture, limits, 7);
  BatchReader reader({mixture, limits, 7}, cut, world_);
  for (int step = 0; step < 4; ++step) {
    GlobalBatch const expected = planner.next();
    MicroBatchSource const& batch = reader.next();
    ASSERT_EQ(batch.groups().count, 2);
    ASSERT_EQ(batch.groups().of_sample.size(), expected.samples.size());
    std::vector<std::int64_t> tokens(2);
    for (std::size_t sample = 0; sample < expected.samples.size(); ++sample) {
      EXPECT_EQ(batch.groups().of_sample[sample], expected.samples[sample].corpus);
      tokens[static_cast<std::size_t>(expected.samples[sample].corpus)] += mixture.predicted(expected.samples[sample]);
    }
    if (world_.rank() == 0) {
      EXPECT_EQ(reader.progress().corpus_tokens, tokens);
      EXPECT_EQ(tokens[0] + tokens[1], batch.tokens().target);
    }
    EXPECT_GT(host(batch.micro_batch(0).target_output.id).size(), 0U);
  }
  BatchReader alone({*samples, limits, 7}, cut, world_);
  EXPECT_EQ(alone.next().groups().count, 0) << "a single corpus has no groups";
}

TEST_F(BatchReaderTest, EachRankGetsItsPartOfASplitPack) {
  CountingSamples const samples;
  MicroBatchCut own = cut;
  own.context = {world_.rank(), world_.size()};
  BatchReader reader({samples, limits, 7}, own, world_);
  MicroBatchSource const& batch = reader.next();
  Pack const pack = batch.micro_batch(0);
  std::int64_t const rows = sums_of<std::int64_t>(world_, {pack.source_rows.tokens}).front();
  EXPECT_EQ(rows, world_.size() > 1 ? pack.source_context.whole.tokens : pack.source_rows.tokens);
}

TEST_F(BatchReaderTest, ABatchMayLeaveNothingHere) {
  CountingSamples const samples;
  MicroBatchCut most = cut;  // of 3 data ranks: a batch is one to three sentences
  most.data = {2, 3};
  BatchReader reader({samples, {.batch_tokens = 6, .max_length = 100}, 7}, most, world_);
  std::int64_t empty = 0;
  for (int step = 0; step < 10; ++step) {
    MicroBatchSource const& batch = reader.next();
    reader.read_ahead();
    empty += batch.count() == 0 ? 1 : 0;
    EXPECT_GT(batch.tokens().all, 0);
  }
  EXPECT_GT(empty, 0);
  EXPECT_LT(empty, 10) << "a later batch is read as always";
}

TEST_F(BatchReaderTest, OneRankReadsForAllDataRanks) {
  CountingSamples const alone;
  BatchPlanner planner(alone, limits, 7);
  MicroBatchCut own = cut;
  own.data = {world_.rank(), world_.size()};
  CountingSamples const shared;
  BatchReader reader({shared, limits, 7}, own, world_, BatchReader::Group::of_all);
  std::int64_t const asked_before = shared.asked;
  for (int step = 0; step < 12; ++step) {
    SampledMicroBatches const expected(alone, planner.next(), own);
    MicroBatchSource const& batch = reader.next();
    reader.read_ahead();
    ASSERT_EQ(batch.count(), expected.count());
    EXPECT_EQ(batch.tokens().all, expected.tokens().all);
    for (std::int64_t index = 0; index < batch.count(); ++index) {
      EXPECT_EQ(host(batch.micro_batch(index).source.id), host(expected.micro_batch(index).source.id));
      EXPECT_EQ(host(batch.micro_batch(index).target_rows.sample),
                host(expected.micro_batch(index).target_rows.sample));
    }
  }
  reader.seek({});  // ends what is read ahead
  EXPECT_EQ(shared.asked > asked_before, world_.rank() == 0);
}

TEST_F(BatchReaderTest, AnErrorOfReadingIsEverybodysAtTheStepThatNeedsTheBatch) {
  CountingSamples samples;
  BatchReader reader({samples, {.batch_tokens = 1000, .max_length = 100}, 7}, cut, world_);
  reader.next();
  samples.broken = 17;
  reader.read_ahead();
  std::string const error = error_of([&] { reader.next(); });
  EXPECT_NE(error.find("sentence 17 is broken"), std::string::npos) << error;
  EXPECT_NE(error_of([&] { reader.next(); }).find("sentence 17 is broken"), std::string::npos);
  EXPECT_NE(error_of([&] { reader.seek({.corpora = {{.epoch = -3}}}); }), "");
}

}  // namespace
}  // namespace heddle
