#include <heddle/io/pairs/pair_files.hpp>
#include <heddle/io/samples/batches.hpp>
#include <heddle/io/samples/pair_samples.hpp>

#include "dataset_fixture.hpp"

namespace heddle {
namespace {

/// Lines of a stream: pair N is "N words", every tenth has an empty side. Knows what was read.
class MadeStream final : public TextPairs {
 public:
  explicit MadeStream(std::int64_t pairs) : pairs_(pairs) {}

  bool is_stream() const override { return true; }
  std::int64_t size() const override { return std::int64_t{1} << 40; }
  SampleFields fields() const override { return {}; }
  std::string const& name() const override { return name_; }
  std::string const& digest() const override { return name_; }

  std::vector<TextPair> read(IndexRange range) const override {
    EXPECT_GE(range.begin, next) << "a stream does not go back";
    std::vector<TextPair> pairs;
    for (next = range.begin; next < std::min(range.end, pairs_); ++next) {
      bool const left_out = next % 10 == 3 || (next >= silent.begin && next < silent.end);
      pairs.push_back({.source = left_out ? "" : english_number(next % 1000), .target = german_number(next % 1000)});
    }
    return pairs;
  }

  mutable std::int64_t next = 0;
  IndexRange silent{};  ///< these have an empty side, too

 private:
  std::int64_t pairs_;
  std::string name_ = "a stream";
};

class PairSamplesTest : public testing::Test {
 protected:
  static constexpr WindowOrder::Sizes sizes{.block_items = 512, .window_blocks = 4};

  std::string write(std::int64_t pairs) const {
    std::string text;
    for (std::int64_t pair = 0; pair < pairs; ++pair) {
      text +=
          pair % 10 == 3 ? std::string("\t\n") : english_number(pair % 1000) + "\t" + german_number(pair % 1000) + "\n";
    }
    return directory_.write("train.tsv", text);
  }
  PairSamplesSetup setup(std::string const& path, std::string const& modifiers = "") const {
    Settings const settings = parse_config("[data.modifiers]\n" + modifiers, "run.toml").data.modifiers;
    return {.pairs = open_tsv({path}),
            .vocabulary = separate_vocabulary(),
            .seed = 5,
            .modifiers = Modifiers(settings, {.name = path, .fields = {}, .vocabulary = separate_vocabulary()}),
            .sizes = sizes};
  }
  static PairSamplesSetup setup(std::shared_ptr<MadeStream> stream) {
    return {.pairs = std::move(stream),
            .vocabulary = separate_vocabulary(),
            .seed = 5,
            .sizes = {.block_items = 8, .window_blocks = 3},
            .max_length = 64,
            .batch_tokens = 700};
  }
  static BatchPlanner planner(SampleSource const& samples) {
    return {samples, {.batch_tokens = 700, .max_length = 64, .epochs = 1}, 5};
  }
  /// The tokens of all batches to the stream's end.
  static std::vector<std::vector<std::int32_t>> rest(BatchPlanner& batches) {
    std::vector<std::vector<std::int32_t>> tokens;
    while (!batches.exhausted()) {
      GlobalBatch const batch = batches.next();
      PackFields read;
      batches.mixture().read(batch.samples, 0, read);  // of several windows
      tokens.push_back(read.source.id);
    }
    return tokens;
  }
  static PackFields read(SampleSource const& samples, std::int64_t epoch, std::vector<std::int64_t> const& indices) {
    PackFields tokens;
    samples.read(epoch, indices, 0, tokens);
    return tokens;
  }

  TemporaryDirectory directory_;
  std::string const all_ = "upper_case = 0.1\ntypos = 0.3\nnoise = 0.05\nmerge = 0.1\nsubword_sampling = 0.5\n";
};

TEST_F(PairSamplesTest, HasTheTokensOfThePairs) {
  auto const samples = pair_samples(setup(write(30)));
  EXPECT_EQ(samples->windows(0), 1);
  auto const indices = samples->window(0, 0);
  EXPECT_EQ(indices.size(), 27U);  // without those that are empty
  auto const& vocabulary = separate_vocabulary();
  PackFields const tokens = read(*samples, 0, {indices[0], indices[4]});
  std::vector<std::int32_t> expected = vocabulary.source.encode(english_number(0));
  expected.push_back(vocabulary.source.special_ids().end);
  auto const fifth = vocabulary.source.encode(english_number(5));
  expected.insert(expected.end(), fifth.begin(), fifth.end());
  expected.push_back(vocabulary.source.special_ids().end);
  EXPECT_EQ(tokens.source.id, expected);
  EXPECT_EQ(samples->cost(0, indices[4]).source, std::ssize(fifth) + 1);
  SampleTotals const totals = samples->totals(0, 100);
  EXPECT_EQ(totals.usable, 27);
  EXPECT_FALSE(totals.estimated);
}

TEST_F(PairSamplesTest, AnySampleIsTheSameInWhateverOrderTheyAreRead) {
  std::string const path = write(3000);
  auto const samples = pair_samples(setup(path, all_));
  ASSERT_EQ(samples->windows(0), 2);
  auto const first = samples->window(1, 0);
  auto const second = samples->window(1, 1);
  PackFields const one = read(*samples, 1, {first[0], first[777], second[5]});
  auto const others = pair_samples(setup(path, all_));  // begins with what the run would have reached
  EXPECT_EQ(others->window(1, 1), second);
  samples->window(4, 0);
  PackFields const again = read(*others, 1, {first[0], first[777], second[5]});
  EXPECT_EQ(one.source.id, again.source.id);
  EXPECT_EQ(one.target.id, again.target.id);
  EXPECT_TRUE(samples->totals(0, 100).estimated);
  EXPECT_NEAR(static_cast<double>(samples->totals(0, 100).usable), static_cast<double>(first.size() + second.size()),
              0.1 * static_cast<double>(first.size()));
}

TEST_F(PairSamplesTest, PairsOfADatasetThatNothingChangesHaveItsTokens) {
  write_fields(directory_ / "fields.h5", 40);
  Dataset const dataset = Dataset::open(directory_ / "fields.h5");
  PairSamplesSetup setup = this->setup(write(10), "upper_case = 0.000001");
  setup.pairs = dataset_pairs(dataset, dataset.fields());
  setup.fields = dataset.fields();
  auto const samples = pair_samples(std::move(setup));
  // One of its own: the other is read ahead by a thread.
  Dataset const same = Dataset::open(directory_ / "fields.h5");
  DatasetSamples const plain(same, PairForm::pairs, 5, {}, "", same.fields());
  auto const indices = samples->window(0, 0);
  PackFields const one = read(*samples, 0, indices);
  PackFields const other = read(plain, 0, plain.window(0, 0));
  EXPECT_EQ(one.source.id, other.source.id);
  EXPECT_EQ(one.target.output, other.target.output);
  EXPECT_EQ(one.target.weight, other.target.weight);
  EXPECT_EQ(one.target.aligned_with, other.target.aligned_with);
}

TEST_F(PairSamplesTest, FieldsFollowTheWords) {
  std::string const path = directory_.write("train.tsv", "one hundred two\teinhundert zwei\t0-0 1-0 2-1\n");
  PairSamplesSetup setup = this->setup(path);
  setup.fields = {SampleField::alignment};
  setup.tag = "two";
  auto const samples = pair_samples(std::move(setup));
  PackFields const tokens = read(*samples, 0, samples->window(0, 0));
  auto const& vocabulary = separate_vocabulary();
  auto const tag = static_cast<std::int32_t>(vocabulary.source.encode("two").size());
  auto const hundred = static_cast<std::int32_t>(vocabulary.source.encode("one hundred").size());
  auto const sources = static_cast<std::int32_t>(vocabulary.source.encode("one hundred two").size());
  auto const targets = vocabulary.target.encode("einhundert").size();
  // Each token of "einhundert" is linked with those of "one hundred", those of "zwei" with those of "two".
  ASSERT_GT(tokens.target.aligned.size(), targets);
  EXPECT_EQ(tokens.target.aligned[0], hundred);
  EXPECT_EQ(tokens.target.aligned[targets], sources - hundred);
  EXPECT_EQ(tokens.target.aligned_with.front(), tag);
}

TEST_F(PairSamplesTest, BatchesContinueInsideAWindow) {
  std::string const path = write(2900);
  auto const planner = [&](SampleSource const& samples) {
    return BatchPlanner(samples, {.batch_tokens = 200, .max_length = 64}, 5);
  };
  auto const samples = pair_samples(setup(path, all_));
  BatchPlanner undisturbed = planner(*samples);
  for (int batch = 0; batch < 250; ++batch) {
    undisturbed.next();
  }
  auto const cursor = undisturbed.cursor();
  auto const others = pair_samples(setup(path, all_));
  BatchPlanner resumed = planner(*others);
  resumed.seek(cursor);
  for (int batch = 0; batch < 100; ++batch) {
    GlobalBatch const one = undisturbed.next();
    GlobalBatch const other = resumed.next();
    ASSERT_EQ(one.samples, other.samples);
    ASSERT_EQ(one.tokens.all, other.tokens.all);
  }
  EXPECT_GT(undisturbed.epochs(), 1);
}

TEST_F(PairSamplesTest, AStreamIsReadInItsOrderToItsEnd) {
  for (std::int64_t const pairs : {1000, 1008, 1004}) {  // a window has 24 lines, a batch samples of several
    auto const stream = std::make_shared<MadeStream>(pairs);
    stream->silent = {200, 300};  // more than a window
    if (pairs == 1004) {
      stream->silent = {900, 1004};
    }
    auto const samples = pair_samples(setup(stream));
    BatchPlanner batches = planner(*samples);
    EXPECT_EQ(stream->next, 0) << "nothing is read before it is asked for";
    std::vector<std::int32_t> all;
    for (auto const& tokens : rest(batches)) {
      all.insert(all.end(), tokens.begin(), tokens.end());
    }
    std::vector<std::int32_t> expected;
    auto const again = std::make_shared<MadeStream>(pairs);
    again->silent = stream->silent;
    for (TextPair const& pair : again->read({0, pairs})) {
      if (!pair.empty()) {
        auto const ids = separate_vocabulary().source.encode(pair.source);
        expected.insert(expected.end(), ids.begin(), ids.end());
        expected.push_back(separate_vocabulary().source.special_ids().end);
      }
    }
    EXPECT_EQ(all, expected) << pairs;
    EXPECT_EQ(batches.epochs(), 1);
    expect_data_error([&] { batches.next(); }, "a stream has ended");
  }
}

TEST_F(PairSamplesTest, AStreamThatIsSentAgainContinues) {
  auto const samples = pair_samples(setup(std::make_shared<MadeStream>(1000)));
  BatchPlanner undisturbed = planner(*samples);
  for (int batch = 0; batch < 5; ++batch) {
    undisturbed.next();
  }
  MixtureCursor const cursor = undisturbed.cursor();
  auto const expected = rest(undisturbed);
  auto const others = pair_samples(setup(std::make_shared<MadeStream>(1000)));
  BatchPlanner resumed = planner(*others);
  resumed.seek(cursor);
  EXPECT_EQ(rest(resumed), expected);
  // The place after the last sample is known again.
  auto const ended = pair_samples(setup(std::make_shared<MadeStream>(1000)));
  BatchPlanner at_end = planner(*ended);
  at_end.seek(undisturbed.cursor());
  EXPECT_TRUE(at_end.exhausted());
}

TEST_F(PairSamplesTest, AStreamWithoutSamplesIsRefused) {
  for (std::int64_t const pairs : {0, 100}) {
    auto const stream = std::make_shared<MadeStream>(pairs);
    stream->silent = {0, 100};
    auto const samples = pair_samples(setup(stream));
    BatchPlanner batches = planner(*samples);
    expect_data_error([&] { batches.next(); }, "a stream has no sentence pair of at most model.max_length = 64 tokens");
  }
}

}  // namespace
}  // namespace heddle
