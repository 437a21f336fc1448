#include <sentencepiece_trainer.h>

#include <heddle/io/dataset/demo_data.hpp>
#include <heddle/io/tokenizers/tokenizer.hpp>

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

TokenizerTraining training_on(std::filesystem::path const& path, std::string const& type, int64_t size) {
  TokenizerTraining training;
  training.texts = {path};
  training.type = type;
  training.vocabulary_size = size;
  return training;
}

TEST(Tokenizer, LearnsTheSameModelAgainAndRoundTrips) {
  TemporaryDirectory const directory;
  auto const text = directory.write("text", numbers_in_words(500));
  for (char const* const type : {"bpe", "unigram"}) {
    Tokenizer const tokenizer = Tokenizer::train(training_on(text, type, 60));
    EXPECT_EQ(tokenizer.size(), 60);
    EXPECT_EQ(tokenizer.special_ids(), (SpecialIds{.begin = 2, .end = 3, .unknown = 1, .padding = 0}));
    std::vector<int32_t> ids = tokenizer.encode("dreihundertzwölftausendfünf");
    EXPECT_GT(ids.size(), 1U);
    EXPECT_EQ(tokenizer.decode(ids), "dreihundertzwölftausendfünf");
    ids.insert(ids.begin(), tokenizer.special_ids().begin);
    ids.push_back(tokenizer.special_ids().end);
    EXPECT_EQ(tokenizer.decode(ids), "dreihundertzwölftausendfünf");
    EXPECT_TRUE(tokenizer.encode("  ").empty());
    EXPECT_EQ(Tokenizer::train(training_on(text, type, 60)).model(), tokenizer.model());
    EXPECT_EQ(Tokenizer::from_model(tokenizer.model()).encode("zwölf"), tokenizer.encode("zwölf"));
  }
}

TEST(Tokenizer, ATagIsOnePieceWhereverItStands) {
  TemporaryDirectory const directory;
  auto training = training_on(directory.write("text", numbers_in_words(500)), "bpe", 60);
  training.symbols = {"<2de>", "<news>"};
  training.sentinels = 2;
  for (char const* const type : {"bpe", "unigram"}) {
    training.type = type;
    Tokenizer const tokenizer = Tokenizer::train(training);
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
  TemporaryDirectory const directory;
  auto training = training_on(directory.write("text", numbers_in_words(500)), "bpe", 330);
  auto const unknown = [](Tokenizer const& tokenizer) {
    auto const ids = tokenizer.encode("fünf 語");
    return std::count(ids.begin(), ids.end(), tokenizer.special_ids().unknown);
  };
  EXPECT_EQ(unknown(Tokenizer::train(training_on(training.texts.front().path, "bpe", 60))), 1);
  training.byte_fallback = true;
  Tokenizer const tokenizer = Tokenizer::train(training);
  EXPECT_EQ(unknown(tokenizer), 0);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("fünf 語")), "fünf 語");
}

TEST(Tokenizer, CharactersBeyondTheCoverageHaveNoPiece) {
  TemporaryDirectory const directory;
  std::string const text = numbers_in_words(500) + "語\n";
  auto training = training_on(directory.write("text", text), "bpe", 60);
  auto const unknown = [&] {
    Tokenizer const tokenizer = Tokenizer::train(training);
    auto const ids = tokenizer.encode("語");
    return std::count(ids.begin(), ids.end(), tokenizer.special_ids().unknown);
  };
  EXPECT_EQ(unknown(), 0);
  training.character_coverage = 0.999;
  EXPECT_EQ(unknown(), 1);
}

TEST(Tokenizer, LearnsALongLineAsItsWords) {
  TemporaryDirectory const directory;
  std::string const lines = numbers_in_words(500);
  std::string words = lines;
  std::ranges::replace(words, '\n', ' ');
  ASSERT_GT(words.size(), 10'000U);
  auto const learn = [&](char const* name, std::string const& text, char const* type) {
    return Tokenizer::train(training_on(directory.write(name, text), type, 60));
  };
  EXPECT_EQ(piece_ids(learn("document", words, "bpe")), piece_ids(learn("lines", lines, "bpe")));
  Tokenizer const unigram = learn("document", words, "unigram");  // of other pieces with equal scores
  std::vector<int32_t> const ids = unigram.encode(words);
  EXPECT_EQ(std::ranges::count(ids, unigram.special_ids().unknown), 0);
  // A word that is longer than a part is split between its characters.
  std::string chinese;
  for (int i = 0; i < 3000; ++i) {
    chinese += i % 3 == 0 ? "語" : "言";
  }
  Tokenizer const tokenizer = Tokenizer::train(training_on(directory.write("chinese", chinese), "bpe", 12));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("言語")), "言語");
}

TEST(Tokenizer, LearnsFromLinesWithTheCharacterThatSentencePieceReserves) {
  TemporaryDirectory const directory;
  auto training = training_on(directory.write("text", "aa bb▅aa\ncc ▅▅\n"), "unigram", 12);
  for (char const* const type : {"bpe", "unigram"}) {
    training.type = type;
    training.byte_fallback = false;
    training.vocabulary_size = 9;
    Tokenizer const tokenizer = Tokenizer::train(training);
    EXPECT_EQ(tokenizer.decode(tokenizer.encode("aa bb▅aa cc ▅▅")), "aa bb▅aa cc ▅▅");
    training.byte_fallback = true;
    training.vocabulary_size = 265;
    Tokenizer const bytes = Tokenizer::train(training);
    EXPECT_EQ(bytes.decode(bytes.encode("cc ▅▅")), "cc ▅▅");
  }
}

TEST(Tokenizer, RefusesIdsOutsideTheVocabulary) {
  TemporaryDirectory const directory;
  Tokenizer const tokenizer = Tokenizer::train(training_on(directory.write("text", numbers_in_words(100)), "bpe", 40));
  EXPECT_THROW(tokenizer.decode(std::vector<int32_t>{5, 40}), Error);
  EXPECT_THROW(tokenizer.decode(std::vector<int32_t>{-1}), Error);
}

TEST(Tokenizer, NamesTheVocabularySizesThatArePossible) {
  TemporaryDirectory const directory;
  auto const text = directory.write("text", numbers_in_words(200));
  for (char const* const type : {"bpe", "unigram"}) {
    std::string const too_large = message_of<UsageError>([&] { Tokenizer::train(training_on(text, type, 100000)); });
    ASSERT_THAT(too_large, HasSubstr("the largest possible is "));
    int64_t const largest = std::stoll(too_large.substr(too_large.rfind(' ')));
    EXPECT_EQ(Tokenizer::train(training_on(text, type, largest)).size(), largest);
    std::string const too_small = message_of<UsageError>([&] { Tokenizer::train(training_on(text, type, 6)); });
    ASSERT_THAT(too_small, HasSubstr("too small"));
    EXPECT_GT(std::stoll(too_small.substr(too_small.rfind(' '))), 20);
  }
  expect_config_error([&] { Tokenizer::train(training_on(text, "words", 50)); }, "expected \"bpe\" or \"unigram\"");
  EXPECT_THROW(Tokenizer::train(training_on(directory.write("empty", "\n\n"), "bpe", 50)), DataError);
}

TEST(Tokenizer, KeepsToItsSampleOfALargeText) {
  TemporaryDirectory const directory;
  auto training = training_on(directory.write("text", numbers_in_words(3000)), "bpe", 60);
  training.sample_bytes = 20'000;
  Tokenizer const sampled = Tokenizer::train(training);
  EXPECT_EQ(sampled.model(), Tokenizer::train(training).model());
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
  TemporaryDirectory const directory;
  auto const text = directory.write("text", numbers_in_words(200));
  Tokenizer const first = Tokenizer::train(training_on(text, "bpe", 50));
  Tokenizer const second = Tokenizer::train(training_on(text, "bpe", 51));
  EXPECT_TRUE((Vocabulary{first, first}).joint());
  EXPECT_FALSE((Vocabulary{first, second}).joint());
  EXPECT_EQ((Vocabulary{first, second}).digest().size(), 64U);
  EXPECT_EQ((Vocabulary{first, second}).digest(), (Vocabulary{first, second}).digest());
  EXPECT_NE((Vocabulary{first, second}).digest(), (Vocabulary{second, first}).digest());
}

}  // namespace
}  // namespace heddle
