#include "preparation/text_findings.hpp"

#include <heddle/io/preparation/prepare.hpp>

#include "dataset_fixture.hpp"

namespace heddle {
namespace {

using ::testing::Pair;

TEST(TextFindings, ControlCharactersAreC0AndC1AndDeleteButNoTab) {
  for (char const* const text : {"a\x01", "\x1F", "a\x7F", "\xC2\x85 b"}) {
    EXPECT_TRUE(has_control_characters(text)) << text;
  }
  for (char const* const text : {"", "a\tb", "\xC2\xA0", "\xC3\x85", "ab", "\xE2\x80\x85"}) {
    EXPECT_FALSE(has_control_characters(text)) << text;
  }
}

TEST(TextFindings, RatiosAreExactToAFewPerMille) {
  RatioCounter ratios;
  for (int pair = 0; pair < 100; ++pair) {
    ratios.add(10, pair < 2 ? 1 : pair < 98 ? 12 : 70);
  }
  EXPECT_NEAR(ratios.quantile(0.01), 0.1, 0.0005);
  EXPECT_NEAR(ratios.quantile(0.5), 1.2, 0.005);
  EXPECT_NEAR(ratios.quantile(0.99), 7, 0.03);
}

TEST(TextFindings, RepeatsAreCountedAndEstimatedWhereThereAreManySamples) {
  RepeatCounter few;
  for (char const* const sample : {"a", "b", "a", "a", "c"}) {
    few.add(hash_of_sample(sample));
  }
  EXPECT_EQ(few.repeats(), 2);
  EXPECT_FALSE(few.is_estimate());
  RepeatCounter many(1000);
  for (int sample = 0; sample < 40'000; ++sample) {
    many.add(hash_of_sample(fmt::format("sample {}", sample % 32'000)));
  }
  EXPECT_TRUE(many.is_estimate());
  EXPECT_NEAR(static_cast<double>(many.repeats()), 8000, 2000);
}

TEST(TextFindings, UnknownCharactersAreThoseWithoutAPieceOnTheirSide) {
  Vocabulary const& vocabulary = separate_vocabulary();
  UnknownCharacters unknown;
  unknown.add(0, "two ☃ and ☃ Å", vocabulary.source);
  unknown.add(1, "zwei ☃", vocabulary.target);
  EXPECT_EQ(unknown.kinds(), 2);
  EXPECT_THAT(unknown.frequent(10), ElementsAre(Pair("☃", 3), Pair("Å", 1)));
  EXPECT_THAT(unknown.frequent(1), ElementsAre(Pair("☃", 3)));
  UnknownCharacters all;
  all.add(0, "☃", vocabulary.source);
  all.add(unknown.take());
  EXPECT_THAT(all.frequent(10), ElementsAre(Pair("☃", 4), Pair("Å", 1)));
  EXPECT_EQ(unknown.kinds(), 0);
}

// A terminal that obeys one of them would print the rest of the line in another order, or nothing.
TEST(TextFindings, ACharacterThatCannotBeSeenIsDescribedByItsNumberAlone) {
  EXPECT_EQ(describe_character("☃"), "☃ U+2603");
  EXPECT_EQ(describe_character("a"), "a U+0061");
  EXPECT_EQ(describe_character("\x1B"), "U+001B");
  EXPECT_EQ(describe_character("\u00A0"), "U+00A0");
  EXPECT_EQ(describe_character("\u00AD"), "U+00AD");
  EXPECT_EQ(describe_character("\u0301"), "U+0301") << "it would be put on the character before it";
  EXPECT_EQ(describe_character("\u200B"), "U+200B");
  EXPECT_EQ(describe_character("\u202E"), "U+202E");
  EXPECT_EQ(describe_character("\U000E0041"), "U+E0041");
}

}  // namespace
}  // namespace heddle
