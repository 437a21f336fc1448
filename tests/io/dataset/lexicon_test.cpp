#include <sys/stat.h>

#include <heddle/io/dataset/lexicon.hpp>
#include <heddle/io/files/regular_file.hpp>

#include "dataset_fixture.hpp"
#include "read_lines.hpp"

namespace heddle {
namespace {

/// The translation of source token t is t + 1 wherever it stands, and half of the targets end with 45, which translates
/// nothing. No two words always occur together.
Dataset word_by_word(TemporaryDirectory const& directory) {
  DatasetWriter writer(directory / "train.h5", separate_vocabulary());
  for (int32_t pair = 0; pair < 600; ++pair) {
    std::vector<int32_t> source;
    std::vector<int32_t> target;
    for (int32_t word = 0; word < 4; ++word) {
      source.push_back(4 + (pair * (2 * word + 1) + pair / 30 * word + word) % 30);
      target.insert(target.begin(), source.back() + 1);
    }
    if (pair % 2 == 0) {
      target.push_back(45);
    }
    writer.add(source, target);
  }
  writer.commit();
  return Dataset::open(directory / "train.h5");
}

TEST(Lexicon, TheLikeliestTranslationOfAWordIsItsTranslation) {
  TemporaryDirectory const directory;
  Dataset const dataset = word_by_word(directory);
  Lexicon const lexicon = learn_lexicon(dataset, {.best = 7});
  ASSERT_EQ(std::ssize(lexicon.translations), 60);
  for (int32_t source = 4; source < 34; ++source) {
    auto const& entries = lexicon.translations[static_cast<std::size_t>(source)];
    ASSERT_FALSE(entries.empty());
    EXPECT_LE(entries.size(), 7U);
    EXPECT_EQ(entries.front().target, source + 1);
    EXPECT_GT(entries.front().probability, 0.8);
    double sum = 0;
    for (std::size_t index = 0; index < entries.size(); ++index) {
      sum += entries[index].probability;
      EXPECT_TRUE(index == 0 || entries[index].probability <= entries[index - 1].probability);
    }
    EXPECT_LE(sum, 1 + 1e-6);
  }
  EXPECT_TRUE(lexicon.translations[50].empty()) << "it does not occur";
  EXPECT_EQ(lexicon.frequent.front().target, 45);
  EXPECT_NEAR(lexicon.frequent.front().probability, 300.0 / (600 * 4 + 300), 1e-9);
}

TEST(Lexicon, IsARegularFile) {
  TemporaryDirectory const directory;
  Dataset const dataset = word_by_word(directory);
  ASSERT_EQ(::mkfifo((directory / "fifo").c_str(), 0600), 0);
  expect_data_error([&] { read_lexicon(directory / "fifo", dataset.vocabulary()); },
                    "fifo: is not a regular file; expected a lexicon");
}

TEST(Lexicon, IsTheSameAgainAndFromAnEvenSample) {
  TemporaryDirectory const directory;
  Dataset const dataset = word_by_word(directory);
  for (int64_t const pairs : {600, 1000, 200}) {
    for (char const* const name : {"first", "second"}) {
      replace_file(directory / name, lexicon_text(learn_lexicon(dataset, {.max_pairs = pairs}), dataset.vocabulary()));
    }
    EXPECT_EQ(read_lines(directory / "first"), read_lines(directory / "second"));
  }
  EXPECT_EQ(learn_lexicon(dataset, {.max_pairs = 200}).translations[9].front().target, 10);
}

TEST(Lexicon, IsReadAsItWasWritten) {
  TemporaryDirectory const directory;
  Dataset const dataset = word_by_word(directory);
  Lexicon const lexicon = learn_lexicon(dataset, {.best = 5});
  replace_file(directory / "lex", lexicon_text(lexicon, dataset.vocabulary()));
  Lexicon const read = read_lexicon(directory / "lex", dataset.vocabulary());
  Shortlist const expected = lexicon.shortlist(10, 3, dataset.vocabulary());
  Shortlist const found = read.shortlist(10, 3, dataset.vocabulary());
  EXPECT_EQ(found.always, expected.always);
  EXPECT_EQ(found.translations, expected.translations);
  EXPECT_EQ(found.always.size(), 10U);
  EXPECT_THAT(read.shortlist(10, 1, dataset.vocabulary()).translations[4], ElementsAre(5));
}

TEST(Lexicon, OfMariansFormatHasThePiecesThatTheVocabularyHas) {
  TemporaryDirectory const directory;
  Tokenizer const& source = separate_vocabulary().source;
  Tokenizer const& target = separate_vocabulary().target;
  std::string text;
  std::vector<std::tuple<int32_t, int32_t, char const*>> const entries{{9, 7, "0.25"}, {8, 7, "5e-1"}, {10, 7, "0.25"}};
  for (auto const& [to, from, probability] : entries) {
    text += fmt::format("{} {} {}\n", target.piece(to), source.piece(from), probability);
  }
  text += fmt::format("nowhere {} 1\n{}\telsewhere\t0.5\n", source.piece(5), target.piece(6));
  Lexicon const lexicon = read_lexicon(directory.write("lex.s2t", text), separate_vocabulary());
  Shortlist const shortlist = lexicon.shortlist(4, 2, separate_vocabulary());
  EXPECT_THAT(shortlist.always, ElementsAre(0, 1, 2, 3)) << "the vocabulary's first, without frequencies";
  EXPECT_THAT(shortlist.translations[7], ElementsAre(8, 9));
  EXPECT_TRUE(shortlist.translations[5].empty());
}

TEST(Lexicon, OfAJointVocabularyLetsASourcesOwnPiecesBeCopied) {
  Tokenizer const& one = separate_vocabulary().source;
  Lexicon lexicon;
  lexicon.translations.resize(9);
  lexicon.translations[7] = {{8, 0.5}, {9, 0.4}, {10, 0.1}};
  Shortlist const joint = lexicon.shortlist(2, 2, {one, one});
  EXPECT_THAT(joint.tokens(std::vector<int32_t>{7, 20}, std::vector<int32_t>{3}), ElementsAre(3, 0, 1, 7, 8, 9, 20));
  Shortlist const separate = lexicon.shortlist(2, 2, separate_vocabulary());
  EXPECT_THAT(separate.tokens(std::vector<int32_t>{7, 20}, std::vector<int32_t>{3}), ElementsAre(3, 0, 1, 8, 9));
}

// Marian's reader passes over lines with NULL: its files may have probabilities of targets without a source there.
TEST(Lexicon, LinesWithNullAreFrequenciesOnlyInItsOwnFiles) {
  TemporaryDirectory const directory;
  Tokenizer const& target = separate_vocabulary().target;
  std::string const pair = fmt::format("{} {} 0.5\n", target.piece(8), separate_vocabulary().source.piece(7));
  std::string const with_null = fmt::format("{} NULL 0.25\n", target.piece(9));
  auto const frequent = [&](std::string const& text) {
    return read_lexicon(directory.write("lex", text), separate_vocabulary()).frequent.size();
  };
  EXPECT_EQ(frequent("NULL NULL 1\n" + with_null + pair), 1U);
  EXPECT_EQ(frequent(with_null + pair), 0U);
}

TEST(Lexicon, WordsMayHaveMoreSpaceBetweenThem) {
  TemporaryDirectory const directory;
  std::string const text = fmt::format("\n  {} \t{}  0.5 \n\n", separate_vocabulary().target.piece(8),
                                       separate_vocabulary().source.piece(7));
  Lexicon const lexicon = read_lexicon(directory.write("lex", text), separate_vocabulary());
  EXPECT_THAT(lexicon.shortlist(0, 1, separate_vocabulary()).translations[7], ElementsAre(8));
}

TEST(Lexicon, AnotherFormatIsRefused) {
  TemporaryDirectory const directory;
  auto const refusal = [&](std::string const& text) {
    return message_of<DataError>([&] { read_lexicon(directory.write("lex", text), separate_vocabulary()); });
  };
  std::string const good = separate_vocabulary().target.piece(5) + " " + separate_vocabulary().source.piece(5) + " ";
  for (char const* const probability : {"", "x", "-1", "2", "nan", "0.5x", "0.5 more"}) {
    EXPECT_THAT(refusal(good + "0.5\n" + good + probability + "\n"), HasSubstr("line 2: expected")) << probability;
  }
  expect_contains(refusal("one\n"), "line 1: expected");
  expect_contains(refusal("a b 0.5\n"), "has no pair of pieces");
}

}  // namespace
}  // namespace heddle
