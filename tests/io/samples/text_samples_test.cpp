#include <heddle/io/samples/batches.hpp>
#include <heddle/io/samples/text_samples.hpp>

#include "test.hpp"

namespace heddle {
namespace {

using Tokens = std::vector<std::int32_t>;

constexpr std::int32_t begin_id = 2;
constexpr std::int32_t end_id = 3;
constexpr std::int32_t mask_id = 4;
constexpr SpecialIds special_ids{.begin = begin_id, .end = end_id, .unknown = 1, .padding = 0, .mask = mask_id};

/// Line i has i % 9 + 1 tokens, or 30 where i % 40 is 7. Token j of it is 100 + 50 i + j, unlike any other.
std::unique_ptr<TextLines> make_lines(std::int64_t count) {
  std::vector<Tokens> lines;
  for (std::int64_t line = 0; line < count; ++line) {
    Tokens tokens(static_cast<std::size_t>(line % 40 == 7 ? 30 : line % 9 + 1));
    std::iota(tokens.begin(), tokens.end(), static_cast<std::int32_t>(100 + 50 * line));
    lines.push_back(std::move(tokens));
  }
  return std::make_unique<MemoryLines>(std::move(lines));
}

enum class TextForm { sequences, prefixed, masked, spans, infilling };

TextRule rule(std::int64_t max_length, std::optional<std::uint64_t> seed = std::nullopt,
              TextForm form = TextForm::sequences, double mask_rate = 0.15) {
  TaskRegistry tasks;
  register_tasks(tasks);
  Config config;
  config.train.mask_rate = mask_rate;
  config.train.noise = form == TextForm::spans ? Noise::spans : Noise::infilling;
  if (form == TextForm::spans || form == TextForm::infilling) {
    config.train.task = "denoising";
  } else {
    config.model.stacks = {form == TextForm::masked ? "encoder" : "decoder"};
  }
  return {.task = tasks.of(config).text({.train = config.train,
                                         .ids = special_ids,
                                         .sentinels = {91, 92, 93, 94, 95, 96},
                                         .vocabulary = 100'000,
                                         .prefixes = form == TextForm::prefixed,
                                         .seed = seed,
                                         .where = "here",
                                         .dataset = "x.h5"}),
          .end = end_id,
          .max_length = max_length,
          .seed = seed};
}

Tokens host(Tensor const& tensor) {
  return to_host<std::int32_t>(tensor);
}

Pack pack_of(SampleSource const& samples, std::int64_t epoch, std::int64_t index) {
  PackFields tokens;
  samples.read(epoch, std::array<std::int64_t, 1>{index}, 0, tokens);
  return make_pack(tokens);
}

/// The number of sequences of an epoch of one window.
std::int64_t size_of(SampleSource const& samples, std::int64_t epoch) {
  EXPECT_EQ(samples.windows(epoch), 1);
  return std::ssize(samples.window(epoch, 0));
}

TEST(TextSamples, LinesAreJoinedWhileTheyFitAndLongOnesAreCut) {
  std::vector<Tokens> lines{{10, 11}, {12}, {13, 14, 15}, {20, 21, 22, 23, 24, 25, 26}, {30}};
  auto const owned = text_samples(std::make_unique<MemoryLines>(lines), rule(5));
  SampleSource const& samples = *owned;
  ASSERT_EQ(size_of(samples, 0), 4);
  Pack const first = pack_of(samples, 0, 0);
  EXPECT_THAT(host(first.target_output.id), ElementsAre(10, 11, end_id, 12, end_id));
  EXPECT_THAT(host(first.target_input.id), ElementsAre(begin_id, 10, 11, end_id, 12));
  EXPECT_THAT(host(first.target_rows.sequences.length), ElementsAre(5));
  EXPECT_EQ(first.source_rows.tokens, 0);
  EXPECT_THAT(host(pack_of(samples, 0, 1).target_output.id), ElementsAre(13, 14, 15, end_id));
  EXPECT_THAT(host(pack_of(samples, 0, 2).target_output.id), ElementsAre(20, 21, 22, 23, 24));
  EXPECT_THAT(host(pack_of(samples, 0, 3).target_output.id), ElementsAre(25, 26, end_id, 30, end_id))
      << "the rest of a line is continued";
  EXPECT_EQ(samples.describe(),
            "5 lines of text, joined into sequences of at most 5 tokens; 1 of them are split: longer than "
            "model.max_length");
  SampleTotals const totals = samples.totals(0, 5);
  EXPECT_EQ(totals.usable, 4);
  EXPECT_EQ(totals.tokens, 19);
  EXPECT_EQ(totals.longest, 5);
}

TEST(TextSamples, PrefixesHideWhatTheyShow) {
  auto const owned = text_samples(make_lines(400), rule(20, 5, TextForm::prefixed));
  SampleSource const& samples = *owned;
  auto const owned_again = text_samples(make_lines(400), rule(20, 5, TextForm::prefixed));
  SampleSource const& again = *owned_again;
  auto const owned_other = text_samples(make_lines(400), rule(20, 6, TextForm::prefixed));
  SampleSource const& other = *owned_other;
  auto const owned_plain = text_samples(make_lines(400), rule(20, 5));
  SampleSource const& plain = *owned_plain;
  double share = 0;
  bool differs = false;
  for (std::int64_t index = 0; index < size_of(samples, 1); ++index) {
    Pack const pack = pack_of(samples, 1, index);
    auto const length = static_cast<std::size_t>(samples.cost(1, index).longer());
    auto const prefix = static_cast<std::size_t>(host(pack.target_rows.prefix_length).front());
    ASSERT_TRUE(prefix >= 1 && prefix <= length);
    Tokens expected = host(pack_of(plain, 1, index).target_output.id);
    std::fill_n(expected.begin(), prefix - 1, -1);
    EXPECT_EQ(host(pack.target_output.id), expected);
    EXPECT_EQ(host(pack.target_input.id), host(pack_of(plain, 1, index).target_input.id));
    EXPECT_EQ(samples.predicted(1, index), static_cast<std::int64_t>(length - prefix + 1));
    EXPECT_EQ(again.predicted(1, index), samples.predicted(1, index));
    differs = differs || other.predicted(1, index) != samples.predicted(1, index);
    share += static_cast<double>(prefix) / static_cast<double>(length + 1) / static_cast<double>(size_of(samples, 1));
  }
  EXPECT_NEAR(share, 0.5, 0.06);
  EXPECT_TRUE(differs);
}

TEST(TextSamples, AnEpochHasEveryTokenOnceInAnotherOrder) {
  constexpr std::int64_t count = 400;
  auto const owned = text_samples(make_lines(count), rule(20, 5));
  SampleSource const& samples = *owned;
  auto const lines = make_lines(count);
  std::int64_t expected = 0;
  for (std::int64_t line = 0; line < count; ++line) {
    expected += lines->length(line) + 1;
  }
  std::vector<Tokens> epochs;
  for (std::int64_t const epoch : {0, 1, 0}) {
    Tokens all;
    for (std::int64_t index = 0; index < size_of(samples, epoch); ++index) {
      Tokens const sequence = host(pack_of(samples, epoch, index).target_output.id);
      EXPECT_LE(sequence.size(), 20U);
      EXPECT_EQ(samples.cost(epoch, index).longer(), static_cast<std::int64_t>(sequence.size()));
      EXPECT_EQ(samples.predicted(epoch, index), static_cast<std::int64_t>(sequence.size()));
      all.insert(all.end(), sequence.begin(), sequence.end());
    }
    epochs.push_back(all);
  }
  EXPECT_EQ(epochs[0], epochs[2]);
  EXPECT_NE(epochs[0], epochs[1]);
  for (Tokens& epoch : epochs) {
    EXPECT_EQ(static_cast<std::int64_t>(epoch.size()), expected);
    EXPECT_EQ(std::count(epoch.begin(), epoch.end(), end_id), count);
    std::erase(epoch, end_id);
    EXPECT_EQ(std::set<std::int32_t>(epoch.begin(), epoch.end()).size(), epoch.size()) << "a token is repeated";
  }
}

TEST(TextSamples, SequencesOfLongTextsStayInTheirWindows) {
  constexpr std::int64_t count = 300'000;
  std::vector<Tokens> lines;
  for (std::int32_t line = 0; line < count; ++line) {
    lines.push_back(Tokens(static_cast<std::size_t>(line % 3 + 1), 10 + line));
  }
  auto const owned = text_samples(std::make_unique<MemoryLines>(lines), rule(20, 5));
  SampleSource const& samples = *owned;
  ASSERT_EQ(samples.windows(0), 3);
  EXPECT_EQ(samples.totals(0, 20).tokens, 3 * count);
  BatchPlanner planner(samples, {.batch_tokens = 30'000, .max_length = 20}, 5);
  std::vector<bool> seen(count);
  std::int64_t ends = 0;
  bool spans = false;
  std::set<std::int64_t> first_ones;
  while (planner.cursor().corpora.front().epoch == 0) {
    MixtureCursor const cursor = planner.cursor();
    GlobalBatch const batch = planner.next();
    if (batch.samples.front().epoch > 0) {
      break;
    }
    spans = spans || batch.samples.front().index >> 32 != batch.samples.back().index >> 32;
    SampledMicroBatches const micro_batches(samples, batch, {.max_tokens = 30'000});
    Tokens const tokens = host(micro_batches.micro_batch(0).target_output.id);
    ASSERT_EQ(std::ssize(tokens), batch.tokens.all);
    for (std::int32_t const token : tokens) {
      ends += token == end_id ? 1 : 0;
      if (token != end_id) {
        seen[static_cast<std::size_t>(token - 10)] = true;
      }
    }
    if (first_ones.size() % 7 == 3) {
      BatchPlanner other(samples, {.batch_tokens = 30'000, .max_length = 20}, 5);
      other.seek(cursor);
      EXPECT_EQ(other.next().samples, batch.samples);
    }
    first_ones.insert(batch.samples.front().index);
  }
  EXPECT_TRUE(spans) << "a batch is filled from the next window";
  EXPECT_EQ(ends, count);
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), count);
}

TEST(MaskedTextSamples, BertsSharesAreMaskedAndEndTokensNever) {
  auto const owned = text_samples(make_lines(4000), rule(32, 5, TextForm::masked));
  SampleSource const& samples = *owned;
  std::map<char const*, double> counts;
  for (std::int64_t index = 0; index < size_of(samples, 0); ++index) {
    Pack const pack = pack_of(samples, 0, index);
    Tokens const input = host(pack.source.id);
    Tokens const output = host(pack.source_output.id);
    ASSERT_EQ(input.size(), output.size());
    auto const predicted = std::count_if(output.begin(), output.end(), [](std::int32_t id) { return id >= 0; });
    EXPECT_EQ(samples.predicted(0, index), predicted);
    EXPECT_GE(predicted, 1);
    for (std::size_t row = 0; row < input.size(); ++row) {
      counts["words"] += output[row] >= 0 || input[row] != end_id ? 1 : 0;
      if (output[row] < 0) {
        EXPECT_NE(input[row], mask_id);
        continue;
      }
      EXPECT_NE(output[row], end_id);
      counts["predicted"] += 1;
      counts["masked"] += input[row] == mask_id ? 1 : 0;
      counts["unchanged"] += input[row] == output[row] ? 1 : 0;
    }
  }
  double const predicted = counts["predicted"];
  EXPECT_NEAR(predicted / counts["words"], 0.15, 0.01);
  EXPECT_NEAR(counts["masked"] / predicted, 0.8, 0.02);
  EXPECT_NEAR(counts["unchanged"] / predicted, 0.1, 0.02);
}

TEST(MaskedTextSamples, SequencesWithNothingToMaskPredictOneTokenAllTheSame) {
  // A rate that no number is below, and a line that leaves a sequence of its end token.
  auto const owned = text_samples(std::make_unique<MemoryLines>(std::vector<Tokens>{{10, 11, 12}}),
                                  rule(3, std::nullopt, TextForm::masked, 1e-12));
  SampleSource const& samples = *owned;
  ASSERT_EQ(size_of(samples, 0), 2);
  EXPECT_EQ(samples.predicted(0, 0), 1);
  EXPECT_THAT(host(pack_of(samples, 0, 1).source_output.id), ElementsAre(end_id));
}

TEST(MaskedTextSamples, MasksFollowSeedAndEpochAndAreFixedForMeasuring) {
  auto const outputs = [](std::optional<std::uint64_t> seed, std::int64_t epoch) {
    // One long line: its place in the epoch does not move.
    Tokens line(200);
    std::iota(line.begin(), line.end(), 10);
    auto const owned =
        text_samples(std::make_unique<MemoryLines>(std::vector<Tokens>{line}), rule(300, seed, TextForm::masked));
    SampleSource const& samples = *owned;
    return host(pack_of(samples, epoch, 0).source_output.id);
  };
  EXPECT_EQ(outputs(1, 0), outputs(1, 0));
  EXPECT_NE(outputs(1, 0), outputs(2, 0));
  EXPECT_NE(outputs(1, 0), outputs(1, 1));
  EXPECT_NE(outputs(std::nullopt, 0), outputs(0, 0));
}

/// The rows of all data ranks' micro-batches in order: what they read, predict, and their samples' numbers.
std::vector<Tokens> dealt(SampleSource const& samples, int ranks, BatchTokens& tokens) {
  BatchPlanner planner(samples, {.batch_tokens = 300, .max_length = 32}, 5);
  planner.next();
  GlobalBatch const batch = planner.next();
  std::vector<Tokens> rows(3);
  for (int rank = 0; rank < ranks; ++rank) {
    SampledMicroBatches const mine(samples, batch, {.max_tokens = 70, .data = {rank, ranks}});
    tokens = mine.tokens();
    for (std::int64_t index = 0; index < mine.count(); ++index) {
      Pack const pack = mine.micro_batch(index);
      std::array const parts{pack.source.id, pack.source_output.id, pack.source_rows.sample};
      for (std::size_t part = 0; part < parts.size(); ++part) {
        Tokens const values = host(parts[part]);
        rows[part].insert(rows[part].end(), values.begin(), values.end());
      }
    }
  }
  return rows;
}

TEST(DenoisedTextSamples, EpochsMaskTheSameTextInOtherPlaces) {
  for (TextForm const form : {TextForm::spans, TextForm::infilling}) {
    auto const owned = text_samples(make_lines(400), rule(31, 5, form));
    SampleSource const& samples = *owned;
    std::set<Tokens> sources;
    for (std::int64_t const epoch : {0, 1}) {
      for (std::int64_t index = 0; index < size_of(samples, epoch); ++index) {
        Pack const pack = pack_of(samples, epoch, index);
        SampleCost const cost = samples.cost(epoch, index);
        EXPECT_EQ(pack.source_rows.tokens, cost.source);
        EXPECT_EQ(pack.target_rows.tokens, cost.target);
        EXPECT_EQ(samples.predicted(epoch, index), cost.target);
        EXPECT_LE(cost.longer(), 32);
        sources.insert(host(pack.source.id));
      }
    }
    EXPECT_EQ(std::ssize(sources), size_of(samples, 0) + size_of(samples, 1));
  }
}

TEST(MaskedTextSamples, TheRanksSharesAreTheWholeBatch) {
  auto const owned = text_samples(make_lines(400), rule(32, 5, TextForm::masked));
  SampleSource const& samples = *owned;
  BatchTokens whole;
  auto const alone = dealt(samples, 1, whole);
  EXPECT_EQ(whole.all, static_cast<std::int64_t>(alone[0].size()));
  EXPECT_EQ(whole.target, std::count_if(alone[1].begin(), alone[1].end(), [](std::int32_t id) { return id >= 0; }));
  for (int const ranks : {2, 3, 8}) {
    BatchTokens tokens;
    EXPECT_EQ(dealt(samples, ranks, tokens), alone) << ranks << " ranks";
    EXPECT_EQ(tokens.target, whole.target);
  }
}

}  // namespace
}  // namespace heddle
