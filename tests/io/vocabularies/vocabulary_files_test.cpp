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
