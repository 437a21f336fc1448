#include <sentencepiece_trainer.h>

#include <heddle/io/dataset/demo_data.hpp>
#include <heddle/io/tokenizers/tokenizer.hpp>

#include "learnt_tokenizer.hpp"
#include "test.hpp"

namespace heddle {
namespace {

std::string numbers_in_words(int64_t count) {
  std::string text;
  for (int64_t i = 0; i < count; ++i) {
    text += german_number(i * 37 % 1'000'000) + "\n";
  }
  return text;
}

TokenizerTraining training_of(std::string const& type, int64_t size) {
  TokenizerTraining training;
  training.type = type;
  training.vocabulary_size = size;
  return training;
}

TEST(Tokenizer, LearnsTheSameModelAgainAndRoundTrips) {
  std::string const text = numbers_in_words(500);
  for (char const* const type : {"bpe", "unigram"}) {
    Tokenizer const tokenizer = learn_tokenizer(text, training_of(type, 60));
    EXPECT_EQ(tokenizer.size(), 60);
    EXPECT_EQ(tokenizer.special_ids(), (SpecialIds{.begin = 2, .end = 3, .unknown = 1, .padding = 0}));
    std::vector<int32_t> ids = tokenizer.encode("dreihundertzwölftausendfünf");
    EXPECT_GT(ids.size(), 1U);
    EXPECT_EQ(tokenizer.decode(ids), "dreihundertzwölftausendfünf");
    ids.insert(ids.begin(), tokenizer.special_ids().begin);
    ids.push_back(tokenizer.special_ids().end);
    EXPECT_EQ(tokenizer.decode(ids), "dreihundertzwölftausendfünf");
    EXPECT_TRUE(tokenizer.encode("  ").empty());
    EXPECT_EQ(learn_tokenizer(text, training_of(type, 60)).model(), tokenizer.model());
    EXPECT_EQ(Tokenizer::from_model(tokenizer.model()).encode("zwölf"), tokenizer.encode("zwölf"));
  }
}

TEST(Tokenizer, ATagIsOnePieceWhereverItStands) {
  std::string const text = numbers_in_words(500);
  auto training = training_of("bpe", 60);
  training.symbols = {"<2de>", "<news>"};
  training.sentinels = 2;
  for (char const* const type : {"bpe", "unigram"}) {
    training.type = type;
    Tokenizer const tokenizer = learn_tokenizer(text, training);
    EXPECT_EQ(tokenizer.size(), 60);
    EXPECT_EQ(tokenizer.sentinels().size(), 2U);
    for (std::string const& tag : training.symbols) {
      std::vector<int32_t> ids = tokenizer.encode(tag);
      EXPECT_EQ(ids.size(), 2U);
      EXPECT_EQ(tokenizer.piece(ids.front()), "\u2581");
      EXPECT_EQ(tokenizer.piece(ids.back()), tag);
      std::vector<int32_t> const word = tokenizer.encode("fünf");
      ids.insert(ids.end(), word.begin(), word.end());
      EXPECT_EQ(tokenizer.encode(tag + " fünf"), ids) << "a tag before a source is the tag before its text";
      EXPECT_EQ(tokenizer.decode(ids), tag + " fünf");
    }
  }
}

TEST(Tokenizer, ByteFallbackLeavesNoCharacterUnknown) {
  std::string const text = numbers_in_words(500);
  auto training = training_of("bpe", 330);
  auto const unknown = [](Tokenizer const& tokenizer) {
    auto const ids = tokenizer.encode("fünf 語");
    return std::count(ids.begin(), ids.end(), tokenizer.special_ids().unknown);
  };
  EXPECT_EQ(unknown(learn_tokenizer(text, training_of("bpe", 60))), 1);
  training.byte_fallback = true;
  Tokenizer const tokenizer = learn_tokenizer(text, training);
  EXPECT_EQ(unknown(tokenizer), 0);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("fünf 語")), "fünf 語");
}

TEST(Tokenizer, CharactersBeyondTheCoverageHaveNoPiece) {
  std::string const text = numbers_in_words(500) + "語\n";
  auto training = training_of("bpe", 60);
  auto const unknown = [&] {
    Tokenizer const tokenizer = learn_tokenizer(text, training);
    auto const ids = tokenizer.encode("語");
    return std::count(ids.begin(), ids.end(), tokenizer.special_ids().unknown);
  };
  EXPECT_EQ(unknown(), 0);
  training.character_coverage = 0.999;
  EXPECT_EQ(unknown(), 1);
}

TEST(Tokenizer, LearnsALongLineAsItsWords) {
  std::string const lines = numbers_in_words(500);
  std::string words = lines;
  std::ranges::replace(words, '\n', ' ');
  ASSERT_GT(words.size(), 10'000U);
  auto const learn = [&](std::string const& text, char const* type) {
    return learn_tokenizer(text, training_of(type, 60));
  };
  EXPECT_EQ(piece_ids(learn(words, "bpe")), piece_ids(learn(lines, "bpe")));
  Tokenizer const unigram = learn(words, "unigram");  // of other pieces with equal scores
  std::vector<int32_t> const ids = unigram.encode(words);
  EXPECT_EQ(std::ranges::count(ids, unigram.special_ids().unknown), 0);
  // A word that is longer than a part is split between its characters.
  std::string chinese;
  for (int i = 0; i < 3000; ++i) {
    chinese += i % 3 == 0 ? "語" : "言";
  }
  Tokenizer const tokenizer = learn_tokenizer(chinese, training_of("bpe", 12));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("言語")), "言語");
}

TEST(Tokenizer, LearnsFromLinesWithTheCharacterThatSentencePieceReserves) {
  std::string const text = "aa bb▅aa\ncc ▅▅\n";
  auto training = training_of("unigram", 12);
  for (char const* const type : {"bpe", "unigram"}) {
    training.type = type;
    training.byte_fallback = false;
    training.vocabulary_size = 9;
    Tokenizer const tokenizer = learn_tokenizer(text, training);
    EXPECT_EQ(tokenizer.decode(tokenizer.encode("aa bb▅aa cc ▅▅")), "aa bb▅aa cc ▅▅");
    training.byte_fallback = true;
    training.vocabulary_size = 265;
    Tokenizer const bytes = learn_tokenizer(text, training);
    EXPECT_EQ(bytes.decode(bytes.encode("cc ▅▅")), "cc ▅▅");
  }
}

TEST(Tokenizer, RefusesIdsOutsideTheVocabulary) {
  Tokenizer const tokenizer = learn_tokenizer(numbers_in_words(100), training_of("bpe", 40));
  EXPECT_THROW(tokenizer.decode(std::vector<int32_t>{5, 40}), Error);
  EXPECT_THROW(tokenizer.decode(std::vector<int32_t>{-1}), Error);
}

TEST(Tokenizer, NamesTheVocabularySizesThatArePossible) {
  std::string const text = numbers_in_words(200);
  for (char const* const type : {"bpe", "unigram"}) {
    std::string const too_large = message_of<UsageError>([&] { learn_tokenizer(text, training_of(type, 100000)); });
    ASSERT_THAT(too_large, HasSubstr("the largest possible is "));
    int64_t const largest = std::stoll(too_large.substr(too_large.rfind(' ')));
    EXPECT_EQ(learn_tokenizer(text, training_of(type, largest)).size(), largest);
    std::string const too_small = message_of<UsageError>([&] { learn_tokenizer(text, training_of(type, 6)); });
    ASSERT_THAT(too_small, HasSubstr("too small"));
    EXPECT_GT(std::stoll(too_small.substr(too_small.rfind(' '))), 20);
  }
  expect_config_error([&] { learn_tokenizer(text, training_of("words", 50)); }, "expected \"bpe\" or \"unigram\"");
  EXPECT_THROW(learn_tokenizer("\n\n", training_of("bpe", 50)), DataError);
}

TEST(Tokenizer, SplitsDigitsWhereAsked) {
  std::string text;
  for (int number = 0; number < 300; ++number) {
    text += "the year 1984 and 198" + std::to_string(number % 7) + "\n";
  }
  auto training = training_of("bpe", 40);
  EXPECT_LT(learn_tokenizer(text, training).encode("1984").size(), 4U);
  training.split_digits = true;
  for (char const* const type : {"bpe", "unigram"}) {
    training.type = type;
    training.vocabulary_size = 22;
    Tokenizer const tokenizer = learn_tokenizer(text, training);
    std::vector<int32_t> const ids = tokenizer.encode("1984");
    EXPECT_EQ(ids.size(), 5U) << "the space, and each digit";
    EXPECT_EQ(tokenizer.decode(ids), "1984");
  }
}

TEST(LineSample, DependsOnTheLinesAndNotOnTheOrderOfTexts) {
  auto const line = [](std::size_t text, int number) {
    return fmt::format("{} {}", text == 0 ? "one" : "two", std::string(static_cast<std::size_t>(number % 50), 'x'));
  };
  auto const lines_of = [](LineSample const& sample) {
    std::vector<std::string> lines;
    for (std::size_t index = 0; index < sample.size(); ++index) {
      lines.push_back(sample.line(index));
    }
    return lines;
  };
  LineSample together(20'000);
  LineSample apart(20'000);
  for (int number = 0; number < 2000; ++number) {
    together.add(0, line(0, number));
    together.add(1, line(1, number));
  }
  for (std::size_t const text : {1, 0}) {
    for (int number = 0; number < 2000; ++number) {
      apart.add(text, line(text, number));
    }
  }
  auto const sampled = lines_of(together);
  EXPECT_EQ(sampled, lines_of(apart));
  EXPECT_GT(sampled.size(), 100U);
  EXPECT_LT(sampled.size(), 400U);
  auto const first = std::ranges::count_if(sampled, [](auto const& text) { return text.starts_with("one"); });
  EXPECT_NEAR(static_cast<double>(first), static_cast<double>(sampled.size()) / 2, 40);
}

TEST(Tokenizer, KeepsToItsSampleOfALargeText) {
  std::string const text = numbers_in_words(3000);
  Tokenizer const sampled = learn_tokenizer(text, training_of("bpe", 60), 20'000);
  EXPECT_EQ(sampled.model(), learn_tokenizer(text, training_of("bpe", 60), 20'000).model());
  // A few hundred lines hold all the words of the numbers, so that nothing is unknown.
  for (int32_t const id : sampled.encode(german_number(987'654))) {
    EXPECT_NE(id, sampled.special_ids().unknown);
  }
}

TEST(Tokenizer, RefusesModelsThatItCannotUse) {
  expect_data_error([] { Tokenizer::from_model("no model"); }, "not a SentencePiece model");
  expect_data_error([] { Tokenizer::from_model(""); }, "SentencePiece model");

  TemporaryDirectory const directory;
  auto const text = directory.write("text", numbers_in_words(200));
  std::string const prefix = (directory / "plain").string();
  auto const status = sentencepiece::SentencePieceTrainer::Train(
      "--input=" + text.string() + " --model_prefix=" + prefix + " --vocab_size=50 --eos_id=-1 --minloglevel=2");
  ASSERT_TRUE(status.ok()) << status.ToString();
  expect_data_error([&] { Tokenizer::from_model(read_whole(prefix + ".model")); }, {"end-of-sentence", "--eos_id"});
}

TEST(Tokenizer, AModelWithoutABeginPieceBeginsWithTheEndPiece) {  // as Marian trains its models
  TemporaryDirectory const directory;
  auto const text = directory.write("text", numbers_in_words(200));
  std::string const prefix = (directory / "marian").string();
  auto const status =
      sentencepiece::SentencePieceTrainer::Train("--input=" + text.string() + " --model_prefix=" + prefix +
                                                 " --vocab_size=50 --bos_id=-1 --eos_id=0 --unk_id=1"
                                                 " --minloglevel=2");
  ASSERT_TRUE(status.ok()) << status.ToString();
  SpecialIds const expected{.begin = 0, .end = 0, .unknown = 1};
  EXPECT_EQ(Tokenizer::from_model(read_whole(prefix + ".model")).special_ids(), expected);
}

TEST(Vocabulary, DigestTellsModelsAndSidesApart) {
  std::string const text = numbers_in_words(200);
  Tokenizer const first = learn_tokenizer(text, training_of("bpe", 50));
  Tokenizer const second = learn_tokenizer(text, training_of("bpe", 51));
  EXPECT_TRUE((Vocabulary{first, first}).joint());
  EXPECT_FALSE((Vocabulary{first, second}).joint());
  EXPECT_EQ((Vocabulary{first, second}).digest().size(), 64U);
  EXPECT_EQ((Vocabulary{first, second}).digest(), (Vocabulary{first, second}).digest());
  EXPECT_NE((Vocabulary{first, second}).digest(), (Vocabulary{second, first}).digest());
}

}  // namespace
}  // namespace heddle
