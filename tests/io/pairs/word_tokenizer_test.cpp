#include "pairs/word_tokenizer.hpp"

#include <heddle/core/base/random.hpp>
#include <heddle/io/text/text.hpp>
#include <heddle/io/tokenizers/token_words.hpp>

#include "dataset_fixture.hpp"

namespace heddle {
namespace {

/// Texts of letters, marks, spaces of all kinds, ligatures and signs that are normalized, in a random order.
std::vector<std::string> odd_texts(std::size_t count) {
  std::vector<std::string> const parts{"one",      " ", " ",  "two ",   "ﬁ",  "\u0308", "a",      "e\u0301", "\u00a0",
                                       "\u3000",   "½", "\t", "▁",      "  ", "\u200b", "\u00ad", "中",      "…",
                                       "hundred ", "-", "ß",  "\u0345", "ǰ",  "\u0600", "Ａ",     "thousand"};
  std::vector<std::string> texts(count);
  for (std::size_t text = 0; text < count; ++text) {
    for (std::uint32_t part = 0; part < 12; ++part) {
      auto const words = Philox::words(1, {static_cast<std::uint32_t>(text), part, 0, 0});
      texts[text] += parts[words[0] % parts.size()];
    }
  }
  return texts;
}

class WordTokenizerTest : public testing::TestWithParam<std::string> {
 protected:
  static Tokenizer learn(std::string const& type) {
    std::string text;
    for (std::int64_t number = 0; number < 400; ++number) {
      text += english_number(number * 37) + "\n";
    }
    for (std::string const& line : odd_texts(300)) {
      text += line + "\n";
    }
    TokenizerTraining training;
    training.vocabulary_size = 120;
    training.type = type;
    training.symbols = {"<tag>"};
    return learn_tokenizer(text, training);
  }
  Tokenizer const tokenizer_ = learn(GetParam());
};

TEST_P(WordTokenizerTest, GivesTheTokensOfTheTokenizer) {
  ASSERT_TRUE(tokenizer_.splits_words());
  WordTokenizer words(tokenizer_);
  std::vector<std::string> texts = odd_texts(5000);
  for (std::int64_t number = 0; number < 2000; ++number) {
    texts.push_back(english_number(number * number % 1000000));
  }
  texts.emplace_back("one <tag>two<tag> three");
  for (std::string const& text : texts) {
    std::vector<std::int32_t> ids;
    words.encode(text, ids);
    ASSERT_EQ(ids, tokenizer_.encode(text)) << text;
  }
}

TEST_P(WordTokenizerTest, KnowsTheWordOfEachToken) {
  WordTokenizer words(tokenizer_);
  for (std::int64_t number = 0; number < 300; ++number) {
    std::string const text = english_number(number * 7919 % 1000000);
    std::vector<std::int32_t> ids;
    std::vector<std::int64_t> of_tokens;
    words.encode(text, ids, &of_tokens);
    EXPECT_EQ(of_tokens, words_of(tokenizer_, text, ids.size())) << text;
  }
}

TEST_P(WordTokenizerTest, SamplesHaveTheTextAndAreTheSameForTheSameNumbers) {
  WordTokenizer words(tokenizer_);
  int different = 0;
  for (std::uint32_t text = 0; text < 200; ++text) {
    std::string const number = english_number(text * 7919 % 1000000);
    auto const sample = [&](double alpha) {
      std::uint32_t used = 0;
      std::vector<std::int32_t> ids;
      words.sample(
          number, alpha,
          [&] {
            return Philox::words(3, {text, used++, 0, 0})[0] * 0x1p-32;
          },
          ids);
      return ids;
    };
    auto const drawn = sample(0.3);
    EXPECT_EQ(drawn, sample(0.3));
    EXPECT_EQ(tokenizer_.decode(drawn), number);
    different += drawn != tokenizer_.encode(number) ? 1 : 0;
    std::vector<std::int32_t> best;
    if (GetParam() == "bpe") {  // without a merge that is left out
      words.sample(
          number, 0, [] { return 0.5; }, best);
      EXPECT_EQ(best, tokenizer_.encode(number));
    }
  }
  EXPECT_GT(different, 150);
}

INSTANTIATE_TEST_SUITE_P(Kinds, WordTokenizerTest, testing::Values("bpe", "unigram"),
                         [](auto const& each) { return each.param; });

TEST(SubwordSampling, LeavesOutTheShareOfMerges) {
  TokenizerTraining training;
  std::string text;
  for (int line = 0; line < 50; ++line) {
    text += "ab abc abc abc bc\n";
  }
  training.vocabulary_size = 11;
  Tokenizer const tokenizer = learn_tokenizer(text, training);
  auto const pieces = piece_ids(tokenizer);
  auto const neighbours = std::ranges::count_if(std::vector<std::string>{"\u2581a", "ab", "bc"},
                                                [&](std::string const& pair) { return pieces.contains(pair); });
  constexpr double alpha = 0.5;
  constexpr int draws = 20000;
  int unmerged = 0;
  for (std::uint32_t draw = 0; draw < draws; ++draw) {
    std::uint32_t used = 0;
    auto const number = [&] { return Philox::words(5, {draw, used++, 0, 0})[0] * 0x1p-32; };
    unmerged += tokenizer.sample("abc", alpha, number).size() == 4 ? 1 : 0;
  }
  ASSERT_GT(neighbours, 0);
  EXPECT_NEAR(unmerged / static_cast<double>(draws), std::pow(alpha, neighbours), 0.01);
}

}  // namespace
}  // namespace heddle
