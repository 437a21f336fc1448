#include <gmock/gmock.h>

#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <heddle/core/base/error.hpp>
#include <heddle/io/vocabularies/sentencepiece_model.hpp>
#include <heddle/io/vocabularies/vocabulary_files.hpp>

#include "temporary_directory.hpp"

namespace heddle {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

fs::path golden_model(std::string const& family) {
  return fs::path(HEDDLE_TEST_DATA) / "exchange" / family;
}

json::object object_in(fs::path const& path) {
  return json::parse(test::read_whole(path)).as_object();
}

TEST(VocabularyFiles, LanguagesWithoutIdsAreInTheirOrder) {
  test::TemporaryDirectory directory;
  fs::copy(golden_model("nllb") / "sentencepiece.bpe.model", directory / "sentencepiece.bpe.model");
  json::object config = object_in(golden_model("nllb") / "config.json");
  std::string const with_ids = read_vocabulary(family_named("m2m_100"), config, golden_model("nllb")).source_model;
  std::ofstream(directory / "special_tokens_map.json")
      << R"({"additional_special_tokens": ["eng_Latn", {"content": "deu_Latn", "lstrip": true}]})";
  EXPECT_EQ(read_vocabulary(family_named("m2m_100"), config, directory.path()).source_model, with_ids);
}

TEST(VocabularyFiles, WithoutTheNamesOfLanguagesAreRefused) {
  test::TemporaryDirectory directory;
  fs::copy(golden_model("nllb") / "sentencepiece.bpe.model", directory / "sentencepiece.bpe.model");
  json::object const config = object_in(golden_model("nllb") / "config.json");
  auto const refusal = [&] {
    return test::message_of<DataError>([&] { read_vocabulary(family_named("m2m_100"), config, directory.path()); });
  };
  EXPECT_THAT(refusal(), testing::HasSubstr("no file names the languages of the vocabulary: tokenizer_config.json"));
  directory.write("tokenizer_config.json", R"({"added_tokens_decoder": {"93": {"content": "<mask>"}}})");
  EXPECT_THAT(refusal(), testing::HasSubstr("no file names the languages of the vocabulary"));
}

TEST(VocabularyFiles, TokensAfterTheMaskKeepTheirIds) {
  test::TemporaryDirectory directory;
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
  test::TemporaryDirectory directory;
  fs::copy(golden_model("t5-v1.1") / "spiece.model", directory / "spiece.model");
  std::int64_t const pieces =
      std::ssize(SentencePieceModel::parse(test::read_whole(directory / "spiece.model")).pieces);
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
  test::TemporaryDirectory directory;
  auto const refusal = [&](char const* family) {
    json::object const config{{"vocab_size", 500}, {"model_type", family}};
    return test::message_of<DataError>([&] { read_vocabulary(family_named(family), config, directory.path()); });
  };
  directory.write("vocab.json", "{}");
  EXPECT_THAT(refusal("gpt2"), testing::HasSubstr("vocab.json is there without merges.txt"));
  directory.write("tokenizer.json", "{}");
  directory.write("tokenizer_config.json", R"({"eos_token": "</s>"})");
  EXPECT_THAT(refusal("llama"), testing::HasSubstr("a member of tokenizer.json or of another JSON file"));
  directory.write("spiece.model", "version https://git-lfs.github.com/spec/v1");
  EXPECT_THAT(refusal("t5"), testing::AllOf(testing::StartsWith((directory / "spiece.model").string()),
                                            testing::HasSubstr("git lfs pull")));
}

TEST(VocabularyFiles, PegasusHasItsOwnIdsBeforeThoseOfTheModel) {
  std::string const bytes = test::read_whole(golden_model("t5-v1.1") / "spiece.model");
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

}  // namespace
}  // namespace heddle
