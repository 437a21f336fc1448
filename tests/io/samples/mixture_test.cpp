#include <heddle/io/checkpoint/checkpoint.hpp>
#include <heddle/io/samples/batches.hpp>
#include <heddle/io/samples/mixture.hpp>
#include <heddle/io/samples/training_data.hpp>

#include "dataset_fixture.hpp"
#include "made_pairs.hpp"

namespace heddle {
namespace {

/// Pairs of one length; each token is the number of the corpus.
class MarkedPairs final : public MadePairs {
 public:
  MarkedPairs(std::int32_t mark, std::int64_t size) : mark_(mark), size_(size) {}

  std::int64_t size(std::int64_t /*epoch*/) const override { return size_; }
  SampleCost cost(std::int64_t /*epoch*/, std::int64_t /*index*/) const override { return {3, 3}; }
  Sample sample(std::int64_t /*epoch*/, std::int64_t /*index*/, std::int32_t number) const override {
    return {number, {mark_, mark_}, {mark_, mark_}};
  }

 private:
  std::int32_t mark_;
  std::int64_t size_;
};

constexpr std::array weights{0.55, 0.3, 0.15};
constexpr BatchPlanner::Limits small_batches{.batch_tokens = 60, .max_length = 10};

/// Three corpora whose epochs are of unequal lengths.
class MixtureTest : public testing::Test {
 protected:
  MixtureTest() {
    for (int number = 0; number < 3; ++number) {
      corpora_.push_back({.samples = std::make_shared<MarkedPairs>(10 + number, 40 + 100 * number),
                          .name = std::string(1, static_cast<char>('a' + number)),
                          .weight = 20 * weights[static_cast<std::size_t>(number)]});
    }
  }
  BatchPlanner planner() const { return {Mixture(corpora_), small_batches, 3}; }

  std::vector<Corpus> corpora_;
};

TEST_F(MixtureTest, EveryPrefixFollowsTheWeights) {
  BatchPlanner planner = this->planner();
  std::array<std::int64_t, 3> drawn{};
  std::int64_t all = 0;
  for (int step = 0; step < 500; ++step) {
    GlobalBatch const batch = planner.next();
    EXPECT_EQ(batch.samples.size(), 20U) << "a batch is full, also where a corpus's epoch ends";
    for (SampleId const& sample : batch.samples) {
      ++drawn[static_cast<std::size_t>(sample.corpus)];
      ++all;
      for (std::size_t corpus = 0; corpus < weights.size(); ++corpus) {
        ASSERT_LT(std::abs(static_cast<double>(drawn[corpus]) - weights[corpus] * static_cast<double>(all)), 1.5);
      }
    }
  }
  std::vector<double> const epochs = planner.corpus_epochs();
  ASSERT_EQ(epochs.size(), drawn.size());
  for (std::size_t corpus = 0; corpus < epochs.size(); ++corpus) {
    EXPECT_NEAR(epochs[corpus], static_cast<double>(drawn[corpus]) / (40 + 100 * static_cast<double>(corpus)), 1e-9);
  }
}

TEST_F(MixtureTest, ACorpusDealsEachSampleOnceAnEpoch) {
  BatchPlanner planner = this->planner();
  std::map<SampleId, int> dealt;
  for (int step = 0; step < 100; ++step) {
    for (SampleId const& sample : planner.next().samples) {
      EXPECT_EQ(++dealt[sample], 1);
    }
  }
  for (std::int64_t index = 0; index < 40; ++index) {
    EXPECT_TRUE(dealt.contains({.corpus = 0, .epoch = 20, .index = index}));
  }
}

TEST_F(MixtureTest, CorporaOfOneSizeHaveOrdersOfTheirOwn) {
  std::map<std::int32_t, std::vector<std::int64_t>> orders;
  for (int number = 0; number < 2; ++number) {
    corpora_[static_cast<std::size_t>(number)] = {.samples = std::make_shared<MarkedPairs>(10, 40),
                                                  .name = number == 0 ? "a" : "b"};
  }
  corpora_.pop_back();
  for (SampleId const& sample : planner().next().samples) {
    orders[sample.corpus].push_back(sample.index);
  }
  ASSERT_EQ(orders[0].size(), 10U);
  EXPECT_NE(orders[0], orders[1]);
}

TEST_F(MixtureTest, AfterSeekTheSameBatchesFollow) {
  BatchPlanner planner = this->planner();
  for (int step = 0; step < 50; ++step) {
    CheckpointContents contents;
    set_data_cursor(contents, planner.cursor());
    BatchPlanner other = this->planner();
    other.seek(data_cursor(contents, "here"));
    EXPECT_EQ(other.next().samples, planner.next().samples);
    EXPECT_EQ(other.cursor(), planner.cursor());
  }
}

TEST_F(MixtureTest, ACheckpointTakesEpochsThatOneDatasetCouldNotHave) {
  MixtureCursor const cursor{
      .corpora = {{.corpus = "a", .epoch = 5'000'000, .position = 1}, {.corpus = "b", .credit = 3, .digest = "12"}},
      .stage = {.stage = 2, .steps = 7, .start_epochs = 0.1}};
  CheckpointContents contents;
  set_data_cursor(contents, cursor);
  EXPECT_EQ(data_cursor(contents, "here"), cursor);
  EXPECT_EQ(contents.state.epoch, 0) << "more than the steps allow";
  MixtureCursor const alone{.corpora = {{.epoch = 2, .position = 9}}};
  set_data_cursor(contents, alone);
  EXPECT_EQ(contents.cursor, "");
  EXPECT_EQ(contents.state.epoch, 2);
  EXPECT_EQ(data_cursor(contents, "here"), alone);
}

TEST_F(MixtureTest, ACorpusThatIsNewStartsAtItsBeginning) {
  BatchPlanner planner = this->planner();
  planner.next();
  corpora_.push_back({.samples = std::make_shared<MarkedPairs>(20, 30), .name = "new", .weight = 1});
  BatchPlanner more = this->planner();
  more.seek(planner.cursor());
  MixtureCursor const cursor = more.cursor();
  EXPECT_EQ(cursor.corpora.back(), (SampleCursor{.corpus = "new"}));
  EXPECT_EQ(cursor.corpora.front(), planner.cursor().corpora.front());
}

TEST_F(MixtureTest, APackHasItsSamplesInTheOrderOfTheBatch) {
  BatchPlanner planner = this->planner();
  GlobalBatch const batch = planner.next();
  std::vector<std::int32_t> marks;
  std::vector<std::int32_t> numbers;
  for (int rank = 0; rank < 3; ++rank) {
    SampledMicroBatches const mine(Mixture(corpora_), batch, {.max_tokens = 15, .data = {rank, 3}});
    for (std::int64_t index = 0; index < mine.count(); ++index) {
      PackFields tokens;
      mine.read(index, tokens);
      for (std::size_t place = 0; place < tokens.source.id.size(); place += 3) {
        marks.push_back(tokens.source.id[place] - 10);
      }
      numbers.insert(numbers.end(), tokens.source.sample.begin(), tokens.source.sample.end());
      EXPECT_EQ(tokens.target.sample, tokens.source.sample);
    }
  }
  ASSERT_EQ(marks.size(), batch.samples.size());
  for (std::size_t place = 0; place < marks.size(); ++place) {
    EXPECT_EQ(marks[place], batch.samples[place].corpus);
    EXPECT_EQ(numbers[place], static_cast<std::int32_t>(place));
  }
}

TEST_F(MixtureTest, CursorsThatNobodyWroteAreRefused) {
  auto const message = [&](std::string const& text) {
    CheckpointContents contents;
    contents.cursor = text;
    return message_of<DataError>([&] { this->planner().seek(data_cursor(contents, "here")); });
  };
  expect_contains(message("{"), "here: not a data cursor");
  expect_contains(message(R"({"version":1})"), "here: not a data cursor");
  expect_contains(message(R"({"version":2,"corpora":[]})"), "version 2; this program reads version 1");
  expect_contains(message(R"({"version":1,"corpora":[{"corpus":"b","epoch":0,"position":999,"credit":0}]})"),
                  "data.corpus.b: epoch 0, window 0, sample 999 is not a place in");
  expect_contains(message(R"({"version":1,"corpora":[{"corpus":"b","epoch":0,"position":0,"credit":99999999999999}]})"),
                  "credit of 99999999999999 is impossible");
  expect_contains(
      message(R"({"version":1,"corpora":[{"corpus":"b","epoch":9223372036854775807,"position":0,"credit":0}]})"),
      "epoch 9223372036854775807 and position 0 are impossible");
  EXPECT_EQ(message(R"({"version":1,"corpora":[{"corpus":"b","epoch":0,"position":9,"credit":-5}]})"), "");
}

/// Datasets of pairs and of lines in a directory.
class CorporaTest : public testing::Test {
 protected:
  CorporaTest() {
    write_sentences(directory_ / "a.h5", 5);
    write_sentences(directory_ / "b.h5", 7);
    for (char const* name : {"a", "b"}) {
      CorpusConfig corpus{.name = name, .places = {.section = std::string("data.corpus.") + name}};
      corpus.train = {(directory_ / (std::string(name) + ".h5")).string()};
      config_.data.corpora.push_back(corpus);
    }
    config_.train.validate_every = 0;
    register_tasks(tasks_);
  }
  Mixture mixture(TrainingData const& data) const { return training_mixture(config_, tasks_.of(config_), data, {}); }

  TemporaryDirectory directory_;
  TaskRegistry tasks_;
  Config config_;
};

TEST_F(CorporaTest, ATagStandsInFrontOfEachSource) {
  config_.data.corpora[1].tag = "<b>";
  TrainingData const data = open_training_data(config_);
  Mixture const mixture = this->mixture(data);
  auto const tag = data.vocabulary().source.encode("<b>");
  ASSERT_FALSE(tag.empty());
  PackFields plain;
  PackFields tagged;
  mixture.read(std::vector<SampleId>{{.corpus = 0, .index = 2}}, 0, plain);
  mixture.read(std::vector<SampleId>{{.corpus = 1, .index = 2}}, 0, tagged);
  std::vector<std::int32_t> expected = tag;
  expected.insert(expected.end(), plain.source.id.begin(), plain.source.id.end());
  EXPECT_EQ(tagged.source.id, expected);
  EXPECT_EQ(tagged.target.id, plain.target.id);
  EXPECT_EQ(mixture.cost({.corpus = 1, .index = 2}).source, std::ssize(expected));
  SampleSource const& samples = *mixture.corpora()[1].samples;
  EXPECT_EQ(samples.totals(0, 100).longest, mixture.cost({.corpus = 1, .index = 6}).longer());
  config_.model.stacks = {"decoder"};
  expect_config_error([&] { this->mixture(data); }, "a tag is prepended to source sentences");
}

TEST_F(CorporaTest, AlignmentsThatAModelAsksForMustBeThere) {
  TrainingData const data = open_training_data(config_);
  expect_config_error(
      [&] { training_mixture(config_, tasks_.of(config_), data, {.fields = {SampleField::alignment}}); },
      "has no word alignments; `heddle prepare --alignments FILE` takes them");
  EXPECT_NO_THROW(training_mixture(config_, tasks_.of(config_), data, {.fields = {SampleField::weights}}));
}

TEST_F(CorporaTest, TheTagOfAValidationSetStandsInFrontOfItsSources) {
  config_.train.validate_every = 1;
  config_.data.corpora[1].tag = "hundred";
  config_.data.valid = (directory_ / "a.h5").string();
  config_.data.valid_sets = {{"b", config_.data.valid}};
  TrainingData data = open_training_data(config_);
  make_validation_samples(config_, tasks_.of(config_), false, data);
  ASSERT_EQ(data.valid.size(), 2U);
  auto const tag = data.vocabulary().source.encode("hundred");
  auto const read = [&](ValidationSet const& set) {
    PackFields tokens;
    set.samples->read(0, std::vector<std::int64_t>{2}, 0, tokens);
    EXPECT_EQ(set.samples->cost(0, 2).source, std::ssize(tokens.source.id));
    std::vector<std::int32_t> source = set.source(2);
    source.push_back(tokens.source.id.back());
    EXPECT_EQ(source, tokens.source.id) << "what is translated is what the loss is of";
    return tokens.source.id;
  };
  std::vector<std::int32_t> expected = tag;
  auto const plain = read(data.valid[0]);
  expected.insert(expected.end(), plain.begin(), plain.end());
  EXPECT_EQ(read(data.valid[1]), expected);
  EXPECT_EQ(data.valid[0].digest(), data.valid[0].dataset.digest());
  EXPECT_NE(data.valid[1].digest(), data.valid[1].dataset.digest()) << "values with another tag are not compared";
  config_.data.valid_tag = "<b>";
  make_validation_samples(config_, tasks_.of(config_), false, data);
  expect_contains(data.valid[0].samples->warning(), "data.valid_tag: the vocabulary lacks characters");
}

TEST_F(CorporaTest, TagsThatAreUnknownOrSeveralPiecesGiveWarnings) {
  TrainingData const data = open_training_data(config_);
  auto const warning = [&](std::string const& tag) {
    config_.data.corpora[1].tag = tag;
    std::vector<std::string> const warnings = mixture(data).warnings();
    return warnings.empty() ? "" : warnings.front();
  };
  EXPECT_EQ(warning(""), "");
  EXPECT_EQ(warning("hundred"), "") << "a piece of its own";
  EXPECT_EQ(warning("one two three"), "") << "a prompt";
  EXPECT_EQ(warning("onetwothree").find("data.corpus.b.tag: the vocabulary has the tag \"onetwothree\" only as "), 0U);
  EXPECT_EQ(warning("<b>"),
            "data.corpus.b.tag: the vocabulary lacks characters of the tag \"<b>\", which are unknown tokens; `heddle "
            "prepare --tag \"<b>\"` without --vocab-model learns one in which it is a single piece");
}

TEST_F(CorporaTest, CorporaThatDoNotFitTogetherAreNamed) {
  TrainingData const data = open_training_data(config_);
  EXPECT_THAT(this->mixture(data).describe(),
              "a: 5 sentence pairs, 50.0 % of the samples; b: 7 sentence pairs, 50.0 % of the samples");
  EXPECT_NE(data.digest(), data.train.front().digest());
  DatasetWriter writer(directory_ / "lines.h5", data.vocabulary().source);
  writer.add(sentence(1, 50));
  writer.commit();
  config_.data.corpora[1].train = {(directory_ / "lines.h5").string()};
  EXPECT_NE(message_of<DataError>([&] { open_training_data(config_); }), "");
}

/// Samples drawn of each corpus until `planner` is in another stage, or past the last one.
std::vector<std::int64_t> drawn_in_stage(BatchPlanner& planner, std::vector<std::int64_t>& steps) {
  std::vector<std::int64_t> drawn(planner.mixture().corpora().size());
  std::int64_t const stage = planner.cursor().stage.stage;
  for (steps.push_back(0); planner.cursor().stage.stage == stage; ++steps.back()) {
    for (SampleId const& sample : planner.next().samples) {
      ++drawn[static_cast<std::size_t>(sample.corpus)];
    }
  }
  return drawn;
}

TEST_F(MixtureTest, StagesEndWhereTheySayAndGiveTheirShares) {
  std::vector<MixtureStage> const stages{{.title = "by passes", .weights = {3, 1, 0}, .corpus = 0, .epochs = 2},
                                         {.title = "by steps", .weights = {0, 1, 2}, .steps = 5},
                                         {.title = "last", .weights = {1, 1, 1}, .corpus = 1, .epochs = 1}};
  BatchPlanner planner(Mixture(corpora_, stages), small_batches, 3);
  std::vector<std::int64_t> steps;
  std::int64_t const first = corpora_[0].samples->totals(0, 10).usable;
  std::vector<std::int64_t> const by_passes = drawn_in_stage(planner, steps);
  // A batch may have samples of the next stage, of which corpus 1 alone is read.
  EXPECT_EQ(by_passes[0], 2 * first);
  EXPECT_NEAR(static_cast<double>(by_passes[1]), static_cast<double>(by_passes[0]) / 3, 30);
  std::vector<std::int64_t> const by_steps = drawn_in_stage(planner, steps);
  EXPECT_EQ(by_steps[0], 0);
  EXPECT_EQ(steps[1], 4) << "the step in which the stage began counts";
  EXPECT_FALSE(planner.exhausted());
  drawn_in_stage(planner, steps);
  EXPECT_TRUE(planner.exhausted());
}

TEST_F(MixtureTest, StagesContinueAfterSeek) {
  std::vector<MixtureStage> const stages{{.title = "", .weights = {3, 1, 0}, .corpus = 0, .epochs = 1.3},
                                         {.title = "", .weights = {0, 1, 2}, .steps = 5},
                                         {.title = "", .weights = {1, 1, 1}}};
  BatchPlanner planner(Mixture(corpora_, stages), small_batches, 3);
  for (int step = 0; step < 60; ++step) {
    CheckpointContents contents;
    set_data_cursor(contents, planner.cursor());
    BatchPlanner other(Mixture(corpora_, stages), small_batches, 3);
    other.seek(data_cursor(contents, "here"));
    EXPECT_EQ(other.next().samples, planner.next().samples) << step;
    EXPECT_EQ(other.cursor(), planner.cursor());
  }
  EXPECT_EQ(planner.cursor().stage.stage, 2);
}

}  // namespace
}  // namespace heddle
