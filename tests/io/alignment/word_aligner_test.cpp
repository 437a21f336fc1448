#include <heddle/io/alignment/word_aligner.hpp>
#include <random>

#include "test.hpp"

namespace heddle {
namespace {

using Links = std::vector<std::int32_t>;

/// Pairs of sentences of words 0 to 19, whose translations have the same number. In every second pair two neighbours of
/// the target are exchanged; `links` are the right ones.
struct MadePairs {
  WordPairs pairs{.source = {}, .target = {}, .source_words = 20, .target_words = 21};
  std::vector<Links> links;

  explicit MadePairs(int count) {
    std::mt19937 random(7);  // its numbers are the same everywhere
    for (int pair = 0; pair < count; ++pair) {
      std::size_t const words = 3 + random() % 8;
      WordIds& source = pairs.source.emplace_back();
      Links& link = links.emplace_back();
      for (std::size_t word = 0; word < words; ++word) {
        source.push_back(static_cast<std::int32_t>(random() % 20));
        link.push_back(static_cast<std::int32_t>(word));
      }
      if (pair % 2 == 0) {
        std::size_t const place = random() % (words - 1);
        std::swap(link[place], link[place + 1]);
      }
      WordIds& target = pairs.target.emplace_back();
      for (std::int32_t const from : link) {
        target.push_back(source[static_cast<std::size_t>(from)]);
      }
      if (pair % 3 == 0) {  // a word that translates none
        target.push_back(20);
        link.push_back(-1);
      }
    }
  }
};

TEST(WordAligner, FindsTheTranslationsAlsoOfRepeatedAndExchangedWords) {
  MadePairs const made(600);
  WordAligner const aligner(made.pairs, {});
  std::int64_t wrong = 0;
  std::int64_t words = 0;
  for (std::size_t pair = 0; pair < made.links.size(); ++pair) {
    Links const found = aligner.align(made.pairs.source[pair], made.pairs.target[pair]);
    for (std::size_t word = 0; word < found.size(); ++word) {
      wrong += found[word] == made.links[pair][word] ? 0 : 1;
      ++words;
    }
  }
  EXPECT_LT(wrong, words / 50) << wrong << " of " << words;
}

TEST(WordAligner, EmptySidesAndUnknownWordsHaveAnAnswer) {
  MadePairs const made(50);
  WordAligner const aligner(made.pairs, {});
  EXPECT_EQ(aligner.align({}, {1, 2}), (Links{-1, -1}));
  EXPECT_EQ(aligner.align({1}, {}), Links());
  EXPECT_EQ(aligner.align({-1}, {-1}).size(), 1U);
  EXPECT_EQ(aligner.align(WordIds(max_aligned_words + 1, 3), {3}), Links{-1}) << "a document in one line";
}

TEST(WordAligner, DirectionsAreJoined) {
  Links const forward{0, 1, 1, -1};  // of targets
  Links const reverse{0, 2, 3};      // of sources
  auto const joined = [&](Symmetrization how) { return pharaoh_text(symmetrize(forward, reverse, how)); };
  EXPECT_EQ(joined(Symmetrization::forward), "0-0 1-1 1-2");
  EXPECT_EQ(joined(Symmetrization::reverse), "0-0 1-2 2-3");
  EXPECT_EQ(joined(Symmetrization::intersection), "0-0 1-2");
  EXPECT_EQ(joined(Symmetrization::either), "0-0 1-1 1-2 2-3");
  EXPECT_EQ(joined(Symmetrization::grow_diag_final_and), "0-0 1-1 1-2 2-3");
  EXPECT_EQ(pharaoh_text(symmetrize({0, -1, 3}, {0, -1, -1, -1}, Symmetrization::grow_diag_final_and)), "0-0 3-2")
      << "far from others, with two free words";
}

TEST(WordAligner, WordsAreTheSameInUpperCase) {
  WordNumbers words;
  EXPECT_EQ(words.add("Ein  ein STRASSE straße"), (WordIds{0, 0, 1, 1}));
  EXPECT_EQ(words.of("straẞe neu"), (WordIds{1, -1}));
}

TEST(AlignmentAgreement, IsTheErrorRateOfSureLinks) {
  AlignmentAgreement agreement;
  agreement.add({{0, 0}, {1, 1}}, {{0, 0}, {1, 2}, {2, 2}});
  EXPECT_DOUBLE_EQ(agreement.error_rate(), 1 - 2.0 / 5);
}

}  // namespace
}  // namespace heddle
