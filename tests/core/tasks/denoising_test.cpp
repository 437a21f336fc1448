#include <heddle/core/tasks/task.hpp>

#include "test.hpp"

namespace heddle {
namespace {

using Tokens = std::vector<std::int32_t>;

constexpr SpecialIds ids{.begin = 2, .end = 3, .unknown = 1, .padding = 0, .mask = 4};
constexpr std::int32_t first_sentinel = 900;

/// The task denoising, with 100 sentinels.
class DenoisingTest : public testing::Test {
 protected:
  DenoisingTest() {
    register_tasks(tasks_);
    config_.train.task = "denoising";
    config_.train.seed = 7;
  }
  std::unique_ptr<TextTask> task(Noise noise, std::int64_t sentinels = 100, SpecialIds const& special = ids) {
    config_.train.noise = noise;
    Tokens of_spans(static_cast<std::size_t>(sentinels));
    std::iota(of_spans.begin(), of_spans.end(), first_sentinel);
    return tasks_.of(config_).text({.train = config_.train,
                                    .ids = special,
                                    .sentinels = of_spans,
                                    .vocabulary = 1000,
                                    .prefixes = false,
                                    .seed = config_.train.seed,
                                    .where = "here",
                                    .dataset = "x.h5"});
  }
  /// A text of the tokens 100, 101, …, the last of which is an end token if it is complete.
  static TextSequence text(std::int64_t length, std::int64_t index, bool complete = true) {
    TextSequence text{{.epoch = 1, .index = index, .length = length, .complete = complete, .ends = {}}, 5, {}};
    text.tokens.resize(static_cast<std::size_t>(length));
    std::iota(text.tokens.begin(), text.tokens.end(), 100);
    if (complete) {
      text.tokens.back() = ids.end;
      text.ends = {length - 1};
    }
    return text;
  }
  static PackFields sample(TextTask const& task, TextSequence const& text) {
    PackFields tokens;
    task.fill(tokens, {text});
    EXPECT_THAT(tokens.source.sample, ElementsAre(text.number));
    EXPECT_EQ(task.cost(text).source, std::ssize(tokens.source.id));
    EXPECT_EQ(task.cost(text).target, tokens.target.length.front());
    EXPECT_EQ(task.predicted(text), task.cost(text).target);
    return tokens;
  }

  TaskRegistry tasks_;
  Config config_;
};

/// The tokens after a sentinel of a target, up to the next one.
Tokens span_of(Tokens const& target, std::int32_t sentinel) {
  auto const begin = std::find(target.begin(), target.end(), sentinel) + 1;
  auto const end =
      std::find_if(begin, target.end(), [](std::int32_t id) { return id >= first_sentinel || id == ids.end; });
  return {begin, end};
}

TEST_F(DenoisingTest, SpansInTheTargetFillTheSourcesSentinels) {
  auto const task = this->task(Noise::spans);
  for (std::int64_t const length : {1, 2, 3, 10, 64, 513}) {
    for (bool const complete : {true, false}) {
      for (std::int64_t index = 0; index < 20; ++index) {
        TextSequence const text = DenoisingTest::text(length, index, complete);
        PackFields const tokens = sample(*task, text);
        EXPECT_LE(std::ssize(tokens.source.id), length + (complete ? 0 : 1));
        EXPECT_EQ(tokens.source.id.back(), ids.end);
        EXPECT_EQ(tokens.target.output.back(), ids.end);
        Tokens restored;
        std::int32_t sentinel = first_sentinel;
        bool after_span = false;
        for (std::size_t place = 0; place + 1 < tokens.source.id.size(); ++place) {
          std::int32_t const id = tokens.source.id[place];
          if (id < first_sentinel) {
            restored.push_back(id);
            after_span = false;
            continue;
          }
          EXPECT_EQ(id, sentinel++) << "sentinels are numbered in order";
          EXPECT_FALSE(after_span) << "two spans touch each other";
          after_span = true;
          Tokens const span = span_of(tokens.target.output, id);
          EXPECT_FALSE(span.empty());
          restored.insert(restored.end(), span.begin(), span.end());
        }
        Tokens expected = text.tokens;
        if (complete) {
          expected.pop_back();
        }
        EXPECT_EQ(restored, expected);
      }
    }
  }
}

TEST_F(DenoisingTest, InfillingRestoresTheWholeText) {
  config_.train.mask_rate = 0.3;
  auto const task = this->task(Noise::infilling);
  bool insertion = false;
  for (std::int64_t const length : {1, 2, 10, 64, 513}) {
    for (std::int64_t index = 0; index < 20; ++index) {
      TextSequence const text = DenoisingTest::text(length, index);
      PackFields const tokens = sample(*task, text);
      EXPECT_EQ(tokens.target.output, text.tokens);
      EXPECT_LE(std::ssize(tokens.source.id), length);
      Tokens kept = tokens.source.id;
      auto const masks = std::erase(kept, ids.mask);
      EXPECT_TRUE(std::ranges::is_sorted(kept.begin(), kept.end() - 1));
      EXPECT_EQ(std::ssize(kept), length - std::llround(0.3 * static_cast<double>(length - 1)) - (length == 2 ? 1 : 0))
          << length;
      // Spans that are empty add masks between adjacent tokens.
      for (std::size_t place = 1; place + 1 < tokens.source.id.size(); ++place) {
        insertion = insertion || (tokens.source.id[place] == ids.mask &&
                                  tokens.source.id[place + 1] == tokens.source.id[place - 1] + 1);
      }
      EXPECT_TRUE(masks >= 1 || length == 1);
    }
  }
  EXPECT_TRUE(insertion);
}

TEST_F(DenoisingTest, RatesAndLengthsAreTheConfigured) {
  config_.train.mask_rate = 0.25;
  config_.train.span_length = 4;
  for (Noise const noise : {Noise::spans, Noise::infilling}) {
    auto const task = this->task(noise);
    double masked = 0;
    double spans = 0;
    std::vector<double> at(100);
    for (std::int64_t index = 0; index < 2000; ++index) {
      PackFields const tokens = sample(*task, DenoisingTest::text(101, index));
      std::vector<bool> kept(100);
      for (std::int32_t const id : tokens.source.id) {
        bool const is_text = id >= 100 && id < first_sentinel;
        spans += is_text || id == ids.end ? 0 : 1;
        if (is_text) {
          kept[static_cast<std::size_t>(id - 100)] = true;
        }
      }
      for (std::size_t place = 0; place < kept.size(); ++place) {
        masked += kept[place] ? 0 : 1;
        at[place] += kept[place] ? 0 : 1;
      }
    }
    EXPECT_EQ(masked, 2000 * 25);
    // Infilling cuts its last span, which makes spans shorter.
    EXPECT_NEAR(masked / spans, 4, noise == Noise::spans ? 0.2 : 0.6);
    for (std::size_t place = 10; place < 90; ++place) {
      EXPECT_NEAR(at[place] / 2000, 0.25, 0.08) << place;
    }
  }
}

TEST_F(DenoisingTest, MasksFollowTheSeedTheEpochAndTheIndex) {
  auto const source = [&](std::uint64_t seed, std::int64_t epoch, std::int64_t index) {
    config_.train.seed = seed;
    TextSequence text = DenoisingTest::text(200, index);
    text.epoch = epoch;
    return sample(*task(Noise::spans), text).source.id;
  };
  EXPECT_EQ(source(1, 1, 1), source(1, 1, 1));
  EXPECT_NE(source(1, 1, 1), source(2, 1, 1));
  EXPECT_NE(source(1, 1, 1), source(1, 2, 1));
  EXPECT_NE(source(1, 1, 1), source(1, 1, 2));
}

TEST_F(DenoisingTest, FewerSentinelsMakeLongerSpans) {
  auto const task = this->task(Noise::spans, 2);
  PackFields const tokens = sample(*task, DenoisingTest::text(101, 3));
  EXPECT_EQ(std::ssize(tokens.source.id), 101 - 15 + 2);
}

TEST_F(DenoisingTest, SentinelsThatAreTooFewForTheLongestSequenceAreCounted) {
  auto const enough = task(Noise::spans);
  Tokens const source = sample(*enough, DenoisingTest::text(100, 3, false)).source.id;
  auto const spans = std::ranges::count_if(source, [](std::int32_t id) { return id >= first_sentinel; });
  EXPECT_EQ(spans, 5) << "15 % of 100 tokens, in spans of 3";
  EXPECT_EQ(enough->warning(100), "");
  EXPECT_EQ(task(Noise::spans, spans)->warning(100), "");
  EXPECT_EQ(task(Noise::infilling, 1)->warning(100), "");
  expect_contains(
      task(Noise::spans, spans - 1)->warning(100),
      {"x.h5: the longest samples have 5 spans", "has 4 sentinels for them", "`heddle prepare --sentinels 5`"});
}

TEST_F(DenoisingTest, AVocabularyWithoutThePiecesIsRefused) {
  expect_config_error([&] { task(Noise::spans, 0); },
                      "here masks spans of text, but the vocabulary of x.h5 has no piece "
                      "<extra_id_0>; `heddle prepare --text … --sentinels 100`");
  expect_config_error([&] { task(Noise::infilling, 5, {.begin = 2, .end = 3}); }, "has no piece <mask>");
}

TEST(TaskRegistry, TasksFollowFromStacksOrAreNamed) {
  TaskRegistry tasks;
  register_tasks(tasks);
  auto const find = [&](std::vector<std::string> const& stacks, std::string const& name) -> Task const& {
    Config config;
    config.model.stacks = stacks;
    config.train.task = name;
    return tasks.of(config);
  };
  EXPECT_EQ(&find({"encoder", "decoder"}, ""), &find({"encoder", "decoder"}, "translation"));
  EXPECT_EQ(&find({"decoder"}, ""), &find({"decoder"}, "language_model"));
  EXPECT_EQ(&find({"encoder"}, ""), &find({"encoder"}, "masked_language_model"));
  EXPECT_TRUE(find({"encoder"}, "").measures_accuracy());
  EXPECT_FALSE(find({"encoder", "decoder"}, "denoising").translates());
  expect_config_error([&] { find({"decoder"}, "denoising"); },
                      "train.task = \"denoising\" needs an encoder and a decoder; model.stacks = [\"decoder\"]");
  expect_config_error([&] { find({"decoder"}, "denoise"); },
                      "train.task = \"denoise\" is not a task; expected one of: translation, ");
  expect_config_error([&] { tasks.add("denoising", tasks.entries().front().task); },
                      "the task name 'denoising' is taken by built-in");
}

}  // namespace
}  // namespace heddle
