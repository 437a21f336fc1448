#include <boost/json.hpp>
#include <heddle/io/tokenizers/sentencepiece_model.hpp>
#include <heddle/io/vocabularies/vocabulary_files.hpp>

#include "test.hpp"

namespace heddle {
namespace {

namespace json = boost::json;

fs::path golden_model(std::string const& family) {
  return fs::path(HEDDLE_TEST_DATA) / "exchange" / family;
}

json::object object_in(fs::path const& path) {
  return json::parse(read_whole(path)).as_object();
}

TEST(VocabularyFiles, LanguagesWithoutIdsAreInTheirOrder) {
  TemporaryDirectory directory;
  fs::copy(golden_model("nllb") / "sentencepiece.bpe.model", directory / "sentencepiece.bpe.model");
  json::object config = object_in(golden_model("nllb") / "config.json");
  std::string const with_ids = read_vocabulary(family_named("m2m_100"), config, golden_model("nllb")).source_model;
  std::ofstream(directory / "special_tokens_map.json")
      << R"({"additional_special_tokens": ["eng_Latn", {"content": "deu_Latn", "lstrip": true}]})";
  EXPECT_EQ(read_vocabulary(family_named("m2m_100"), config, directory.path()).source_model, with_ids);
}

TEST(VocabularyFiles, WithoutTheNamesOfLanguagesAreRefused) {
  TemporaryDirectory directory;
  fs::copy(golden_model("nllb") / "sentencepiece.bpe.model", directory / "sentencepiece.bpe.model");
  json::object const config = object_in(golden_model("nllb") / "config.json");
  auto const refusal = [&] {
    return message_of<DataError>([&] { read_vocabulary(family_named("m2m_100"), config, directory.path()); });
  };
  expect_contains(refusal(), "no file names the languages of the vocabulary: tokenizer_config.json");
  directory.write("tokenizer_config.json", R"({"added_tokens_decoder": {"93": {"content": "<mask>"}}})");
  expect_contains(refusal(), "no file names the languages of the vocabulary");
}

TEST(VocabularyFiles, TokensAfterTheMaskKeepTheirIds) {
  TemporaryDirectory directory;
  fs::copy(golden_model("nllb") / "sentencepiece.bpe.model", directory / "sentencepiece.bpe.model");
  json::object config = object_in(golden_model("nllb") / "config.json");
  config["vocab_size"] = config.at("vocab_size").as_int64() + 1;
  directory.write("tokenizer_config.json",
                  R"({"added_tokens_decoder": {"91": {"content": "eng_Latn"}, "92": {"content": "deu_Latn"},
                      "93": {"content": "<mask>"}, "94": {"content": "gsw_Latn", "special": true}}})");
  auto const read =
      Tokenizer::from_model(read_vocabulary(family_named("m2m_100"), config, directory.path()).source_model);
  EXPECT_EQ(read.piece(93), "<mask>");
  EXPECT_EQ(read.piece(94), "gsw_Latn");
}

TEST(VocabularyFiles, T5HasAHundredSentinelsUnlessItsFilesSayOtherwise) {
  TemporaryDirectory directory;
  fs::copy(golden_model("t5-v1.1") / "spiece.model", directory / "spiece.model");
  std::int64_t const pieces = std::ssize(SentencePieceModel::parse(read_whole(directory / "spiece.model")).pieces);
  json::object const config{{"vocab_size", pieces + 128}, {"decoder_start_token_id", 0}};
  auto const first_sentinel = [&] {
    return Tokenizer::from_model(read_vocabulary(family_named("t5"), config, directory.path()).source_model)
        .piece(static_cast<std::int32_t>(pieces));
  };
  EXPECT_EQ(first_sentinel(), "<extra_id_99>");
  directory.write("tokenizer_config.json", R"({"extra_ids": 10})");
  EXPECT_EQ(first_sentinel(), "<extra_id_9>");
  directory.write("tokenizer_config.json", R"({"added_tokens_decoder": {}})");
  EXPECT_EQ(first_sentinel(), "<madeupword0>");
}

TEST(VocabularyFiles, ThatCannotBeReadAreNamedWithARemedy) {
  TemporaryDirectory directory;
  auto const refusal = [&](char const* family) {
    json::object const config{{"vocab_size", 500}, {"model_type", family}};
    return message_of<DataError>([&] { read_vocabulary(family_named(family), config, directory.path()); });
  };
  expect_contains(refusal("t5"), "neither spiece.model nor tokenizer.json");
  directory.write("vocab.json", "{}");
  expect_contains(refusal("gpt2"), "vocab.json is there without merges.txt");
  directory.write("tokenizer.json", "{}");
  directory.write("tokenizer_config.json", R"({"eos_token": "</s>"})");
  expect_contains(refusal("llama"), "it has no member model.vocab");
  directory.write("spiece.model", "version https://git-lfs.github.com/spec/v1");
  EXPECT_THAT(refusal("t5"), AllOf(StartsWith((directory / "spiece.model").string()), HasSubstr("git lfs pull")));
}

TEST(VocabularyFiles, PegasusHasItsOwnIdsBeforeThoseOfTheModel) {
  std::string const bytes = read_whole(golden_model("t5-v1.1") / "spiece.model");
  SentencePieceModel const model = SentencePieceModel::parse(bytes);
  json::object const config{{"vocab_size", std::ssize(model.pieces) + 103}, {"decoder_start_token_id", 0}};
  Tokenizer const read =
      Tokenizer::from_model(read_vocabulary(family_named("pegasus"), config, golden_model("t5-v1.1")).source_model);
  EXPECT_EQ(read.size(), std::ssize(model.pieces) + 103);
  EXPECT_EQ(read.piece(2), "<mask_1>");
  EXPECT_EQ(read.piece(104), "<unk_102>");
  EXPECT_EQ(read.special_ids().unknown, 105);
  EXPECT_EQ(read.special_ids().begin, 0);
  EXPECT_EQ(read.special_ids().end, 1);
  EXPECT_EQ(read.piece(103 + 7), model.pieces[7].text);
}

/// A directory as transformers 5 saves a tokenizer: tokenizer.json, and no SentencePiece model.
Tokenizer read_saved(TemporaryDirectory const& directory, std::string const& name, char const* family,
                     json::object config, std::string const& settings) {
  fs::copy(golden_model("pieces_" + name + ".json"), directory / "tokenizer.json",
           fs::copy_options::overwrite_existing);
  directory.write("tokenizer_config.json", settings);
  config["model_type"] = family;
  return Tokenizer::from_model(read_vocabulary(family_named(family), config, directory.path()).source_model);
}

TEST(VocabularyFiles, OfTransformers5AreReadFromTokenizerJson) {
  TemporaryDirectory directory;
  Tokenizer const t5 = read_saved(directory, "t5", "t5", {{"vocab_size", 300}, {"pad_token_id", 0}},
                                  R"({"tokenizer_class": "T5Tokenizer", "eos_token": "</s>", "unk_token": "<unk>"})");
  EXPECT_EQ(t5.special_ids(), (SpecialIds{.begin = 0, .end = 1, .unknown = 2, .padding = 0}));
  EXPECT_EQ(t5.size(), 300);
  EXPECT_EQ(t5.sentinels().size(), 3U);

  Tokenizer const nllb = read_saved(
      directory, "nllb", "m2m_100",
      {{"vocab_size", 288},
       {"pad_token_id", 1},
       {"eos_token_id", 2},
       {"bos_token_id", 0},
       {"is_encoder_decoder", true}},
      R"({"tokenizer_class": "NllbTokenizer", "mask_token": "<mask>", "unk_token": "<unk>", "src_lang": "deu_Latn"})");
  EXPECT_EQ(nllb.special_ids().begin, 2);
  EXPECT_EQ(nllb.special_ids().unknown, 3);
  ASSERT_EQ(nllb.form().languages.size(), 2U);
  EXPECT_EQ(nllb.piece(nllb.form().languages[0]), "eng_Latn");
  EXPECT_EQ(nllb.piece(nllb.form().source.default_language), "deu_Latn");
  EXPECT_EQ(nllb.form().source.language, LanguagePosition::first);
  Tokenizer const of_no_class =
      read_saved(directory, "nllb", "m2m_100",
                 {{"vocab_size", 288}, {"pad_token_id", 1}, {"eos_token_id", 2}, {"is_encoder_decoder", true}},
                 R"({"tokenizer_class": "TokenizersBackend"})");
  EXPECT_EQ(of_no_class.form().source.language, LanguagePosition::first);
  EXPECT_TRUE(of_no_class.form().source.prefix.empty());

  directory.write("generation_config.json", R"({"decoder_start_token_id": 3})");
  EXPECT_EQ(
      read_saved(directory, "gemma", "llama", {{"vocab_size", 450}, {"eos_token_id", 1}}, "{}").special_ids().begin, 3);
}

TEST(VocabularyFiles, AnIdWithoutATokenKeepsItsPlace) {
  TemporaryDirectory directory;
  fs::copy(golden_model("nllb") / "sentencepiece.bpe.model", directory / "sentencepiece.bpe.model");
  json::object config = object_in(golden_model("nllb") / "config.json");
  config["vocab_size"] = 96;
  directory.write("tokenizer_config.json",
                  R"({"tokenizer_class": "NllbTokenizer", "added_tokens_decoder": {"91": {"content": "eng_Latn"},
                      "93": {"content": "deu_Latn"}, "94": {"content": "<mask>"}}})");
  auto const read =
      Tokenizer::from_model(read_vocabulary(family_named("m2m_100"), config, directory.path()).source_model);
  EXPECT_EQ(read.piece(93), "deu_Latn");
  EXPECT_EQ(read.special_ids().mask, 94);
  EXPECT_EQ(read.form().languages, (std::vector<std::int32_t>{91, 93}));
}

TEST(VocabularyFiles, ADecoderMayStartFromTheUnknownPiece) {  // as MADLAD-400's do
  TemporaryDirectory directory;
  fs::copy(golden_model("nllb") / "sentencepiece.bpe.model", directory / "spiece.model");
  json::object const config{{"vocab_size", 96},   {"pad_token_id", 1},           {"eos_token_id", 2},
                            {"model_type", "t5"}, {"decoder_start_token_id", 0}, {"is_encoder_decoder", true}};
  directory.write("tokenizer_config.json", R"({"tokenizer_class": "T5Tokenizer", "extra_ids": 0})");
  auto const read = Tokenizer::from_model(read_vocabulary(family_named("t5"), config, directory.path()).source_model);
  EXPECT_EQ(read.special_ids().begin, 0);
  EXPECT_EQ(read.special_ids().unknown, 0);
  EXPECT_EQ(read.special_ids().padding, 1);
  EXPECT_EQ(read.special_ids().end, 2);
}

TEST(VocabularyFiles, OfByT5FollowFromBytes) {
  TemporaryDirectory directory;
  json::object const config{{"vocab_size", 384}, {"pad_token_id", 0}, {"eos_token_id", 1}, {"model_type", "t5"}};
  directory.write("tokenizer_config.json", R"({"tokenizer_class": "ByT5Tokenizer", "extra_ids": 0})");
  auto const read = Tokenizer::from_model(read_vocabulary(family_named("t5"), config, directory.path()).source_model);
  EXPECT_EQ(read.size(), 384);
  EXPECT_EQ(read.encode("aé </s>"), (std::vector<std::int32_t>{100, 198, 172, 35, 63, 50, 118, 65}));
  EXPECT_EQ(read.decode(read.encode(" aé\x01\t日")), " aé\x01\t日");
  EXPECT_EQ(read.special_ids(), (SpecialIds{.begin = 0, .end = 1, .unknown = 2, .padding = 0}));
  EXPECT_EQ(read.sentinels().at(0), 259);
  EXPECT_EQ(read.sentinels().size(), 125U);
}

TEST(VocabularyFiles, WordsOfAnotherTokenizerAreRefused) {
  TemporaryDirectory directory;
  directory.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n");
  json::object const config{{"vocab_size", 6}};
  auto const read = [&](std::string const& type) {
    directory.write("tokenizer_config.json", json::serialize(json::object{{"tokenizer_class", type}}));
    read_vocabulary(family_named("bert"), config, directory.path());
  };
  expect_data_error([&] { read("BertJapaneseTokenizer"); }, "vocab.txt of BertJapaneseTokenizer");
  EXPECT_NO_THROW(read("BertTokenizerFast"));
  directory.write("tokenizer_config.json", R"({"word_tokenizer_type": "mecab"})");
  expect_data_error([&] { read_vocabulary(family_named("bert"), config, directory.path()); },
                    "vocab.txt of word_tokenizer_type = \"mecab\"");
  directory.write("tokenizer_config.json", R"({"word_tokenizer_type": "basic"})");
  json::object named = config;
  named["tokenizer_class"] = "BertJapaneseTokenizer";
  expect_data_error([&] { read_vocabulary(family_named("bert"), named, directory.path()); },
                    "vocab.txt of BertJapaneseTokenizer");
}

TEST(VocabularyFiles, PositionsThatAreCountedFromAnotherPaddingAreRefused) {
  std::string const bytes =
      read_vocabulary(family_named("t5"), {{"vocab_size", 481}}, golden_model("t5-v1.1")).source_model;
  Tokenizer const tokenizer = Tokenizer::from_model(bytes);
  Vocabulary const vocabulary{tokenizer, tokenizer};
  json::object config{{"pad_token_id", 7}};
  expect_config_error([&] { vocabulary_files(family_named("m2m_100"), vocabulary, {}, config); },
                      {"pad_token_id = 7", "pad_token_id = 0"});
}

TEST(VocabularyFiles, OfAMarianModelThatWasTrainedHereMayBeATokenizerJson) {
  TemporaryDirectory directory;
  fs::copy(fs::path(HEDDLE_TEST_DATA) / "exchange/byte_level_bart.json", directory / "tokenizer.json");
  directory.write("tokenizer_config.json", R"({"tokenizer_class": "PreTrainedTokenizerFast"})");
  json::object const config{
      {"model_type", "marian"}, {"vocab_size", 500}, {"decoder_start_token_id", 0}, {"eos_token_id", 2}};
  auto const read = read_vocabulary(family_named("marian"), config, directory.path());
  EXPECT_EQ(Tokenizer::from_model(read.target_model).special_ids().begin, 0);
}

TEST(VocabularyFiles, LimitsOfGenerationAreThoseOfTheTargetsVocabulary) {
  TemporaryDirectory directory;
  fs::copy(golden_model("marian"), directory.path());
  fs::copy(directory / "vocab.json", directory / "target_vocab.json");
  fs::remove(directory / "generation_config.json");
  json::object config = object_in(directory / "config.json");
  config["bad_words_ids"] = json::array{json::array{7}};
  auto const read = read_vocabulary(family_named("marian"), config, directory.path());
  using Words = std::vector<std::vector<std::int32_t>>;
  EXPECT_EQ(Tokenizer::from_model(read.source_model).form().suppressed, Words());
  EXPECT_EQ(Tokenizer::from_model(read.target_model).form().suppressed, Words{{7}});
}

TEST(VocabularyFiles, OfMarianAreOfOneTokenizer) {
  TemporaryDirectory directory;
  fs::copy(golden_model("marian"), directory.path());
  json::object config = object_in(directory / "config.json");
  auto const refusal = [&] {
    return message_of<DataError>([&] { read_vocabulary(family_named("marian"), config, directory.path()); });
  };
  EXPECT_NO_THROW(read_vocabulary(family_named("marian"), config, directory.path()));
  config["vocab_size"] = config.at("vocab_size").as_int64() - 1;
  expect_contains(refusal(), "rows, but the vocabulary has");
  config["vocab_size"] = config.at("vocab_size").as_int64() + 1;
  fs::copy(golden_model("sentencepiece_bytes.model"), directory / "source.spm", fs::copy_options::overwrite_existing);
  expect_contains(refusal(), "pieces of source.spm are in vocab.json: they are files of different");
}

}  // namespace
}  // namespace heddle
