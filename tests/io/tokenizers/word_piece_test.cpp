#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/io/tokenizers/tokenizer.hpp>
#include <heddle/io/vocabularies/tokenizer_json.hpp>
#include <heddle/io/vocabularies/vocabulary_files.hpp>
#include <sstream>

#include "exchange_file.hpp"
#include "temporary_directory.hpp"

// The golden files were written by Hugging Face's tokenizers: see word_piece.py beside them.

namespace heddle {
namespace {

namespace json = boost::json;
using test::exchange_file;
using test::message_of;
using test::read_whole;
using test::TemporaryDirectory;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr SpecialIds bert_ids{.begin = 2, .end = 3, .unknown = 1, .padding = 0, .mask = 4};
constexpr std::int64_t bert_rows = 610;

std::string word_piece_file(std::string const& name) {
  return exchange_file("word_piece_" + name);
}

std::vector<std::string> word_piece_lines(std::string const& name) {
  std::vector<std::string> lines;
  std::istringstream in(word_piece_file(name));
  for (std::string line; std::getline(in, line);) {
    lines.push_back(line);
  }
  return lines;
}

/// A golden tokenizer, with the first `from` in its file replaced.
Tokenizer word_pieces(std::string const& name, std::string const& from = "", std::string const& to = "") {
  std::string file = word_piece_file(name + ".json");
  std::size_t const at = file.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return Tokenizer::from_model(read_json_vocabulary({{"tokenizer.json", file.replace(at, from.size(), to)}},
                                                    json::object{{"vocab_size", bert_rows}}));
}

std::vector<std::string> pieces_of(Tokenizer const& tokenizer, std::string const& text) {
  std::vector<std::string> pieces;
  for (std::int32_t const id : tokenizer.encode(text)) {
    pieces.push_back(tokenizer.piece(id));
  }
  return pieces;
}

void expect_golden_word_pieces(Tokenizer const& tokenizer, std::string const& name) {
  auto const lines = word_piece_lines("lines.txt");
  auto const golden_ids = word_piece_lines(name + ".ids");
  auto const texts = word_piece_lines(name + ".txt");
  ASSERT_GT(lines.size(), 60U);
  ASSERT_EQ(lines.size(), golden_ids.size());
  ASSERT_EQ(lines.size(), texts.size());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    auto const ids = tokenizer.encode(lines[i]);
    std::string found;
    for (std::int32_t const id : ids) {
      found += (found.empty() ? "" : " ") + std::to_string(id);
    }
    EXPECT_EQ(found, golden_ids[i]) << name << ": " << lines[i];
    EXPECT_EQ(tokenizer.decode(ids), texts[i]) << name;
  }
}

TEST(WordPiece, HasTheIdsAndTextsOfTheOtherSystem) {
  expect_golden_word_pieces(word_pieces("uncased"), "uncased");
  expect_golden_word_pieces(word_pieces("cased"), "cased");
}

TEST(WordPiece, NeitherReadsNorWritesSpecialPieces) {
  Tokenizer const tokenizer = word_pieces("cased");
  EXPECT_EQ(tokenizer.special_ids(), bert_ids);
  EXPECT_EQ(tokenizer.size(), bert_rows);
  EXPECT_EQ(tokenizer.piece(4), "[MASK]");
  EXPECT_EQ(tokenizer.piece(609), "<madeupword609>");
  auto ids = tokenizer.encode("[MASK] man");
  std::string const text = tokenizer.decode(ids);
  EXPECT_THAT(text, ::testing::StartsWith("[ "));
  EXPECT_THAT(ids, ::testing::Each(::testing::AllOf(::testing::Ge(5), ::testing::Lt(605))));
  ids.insert(ids.begin(), {0, 2, 4, 609});
  ids.push_back(3);
  EXPECT_EQ(tokenizer.decode(ids), text);
  EXPECT_THROW(tokenizer.decode(std::vector{int{bert_rows}}), Error);
  EXPECT_EQ(tokenizer.encode("a\xff\xe2\x82z"), tokenizer.encode("a\ufffd\ufffdz"));
}

TEST(WordPiece, AWordIsUnknownAsAWholeOrIfItIsLong) {
  Tokenizer const tokenizer = word_pieces("uncased");
  EXPECT_THAT(pieces_of(tokenizer, "man\u2621s"), ElementsAre("[UNK]"));
  EXPECT_EQ(tokenizer.encode(std::string(101, 'a')), std::vector{1});
  EXPECT_GT(tokenizer.encode(std::string(100, 'a')).size(), 10U);
  Tokenizer const shorter =
      word_pieces("uncased", R"("max_input_chars_per_word":100)", R"("max_input_chars_per_word":3)");
  EXPECT_THAT(pieces_of(shorter, "man m\u00e4n mann"), ElementsAre("man", "man", "[UNK]"));
}

TEST(WordPiece, StepsOfTheNormalizerMayBeLeftOut) {
  std::string const steps = R"("clean_text":true,"handle_chinese_chars":true,"strip_accents":null,"lowercase":true)";
  auto const with = [&](std::string const& other) { return word_pieces("uncased", steps, other); };
  Tokenizer const accents =
      with(R"("clean_text":true,"handle_chinese_chars":true,"strip_accents":false,"lowercase":true)");
  EXPECT_THAT(pieces_of(accents, "MAN m\u00e4n"), ::testing::Contains("man"));
  EXPECT_NE(accents.encode("m\u00e4n"), accents.encode("man"));
  Tokenizer const capitals =
      with(R"("clean_text":true,"handle_chinese_chars":true,"strip_accents":true,"lowercase":false)");
  EXPECT_EQ(capitals.encode("m\u00e4n"), capitals.encode("man"));
  EXPECT_NE(capitals.encode("MAN"), capitals.encode("man"));
  Tokenizer const joined =
      with(R"("clean_text":false,"handle_chinese_chars":false,"strip_accents":null,"lowercase":true)");
  EXPECT_EQ(joined.encode("a\u5929\u5730").size(), 1U);
  EXPECT_EQ(joined.encode("ma\u0001n"), std::vector{1});
  Tokenizer const plain = word_pieces("uncased", R"("normalizer":{"type")", R"("normalizer":null,"none":{"type")");
  EXPECT_EQ(plain.encode("man"), word_pieces("uncased").encode("MAN"));
  EXPECT_NE(plain.encode("MAN"), plain.encode("man"));
}

TEST(WordPiece, RefusesTokenizersThatDoMore) {
  auto const message = [](std::string const& from, std::string const& to) {
    return message_of<DataError>([&] { word_pieces("cased", from, to); });
  };
  EXPECT_THAT(message(R"("type":"BertNormalizer")", R"("type":"Lowercase")"), HasSubstr("normalizer"));
  EXPECT_THAT(message(R"("type":"BertPreTokenizer")", R"("type":"Whitespace")"), HasSubstr("pre_tokenizer"));
  EXPECT_THAT(message(R"("decoder":{"type":"WordPiece")", R"("decoder":{"type":"ByteLevel")"), HasSubstr("decoder"));
  EXPECT_THAT(message(R"("prefix":"##")", R"("prefix":"@@")"), HasSubstr("decoder.prefix"));
  EXPECT_THAT(message(R"("unk_token":"[UNK]")", R"("unk_token":"<unk>")"), HasSubstr("unknown piece \"<unk>\""));
  EXPECT_THAT(message(R"("unk_token":"[UNK]",)", ""), HasSubstr("not a tokenizer.json"));
  EXPECT_THAT(message(R"("max_input_chars_per_word":100)", R"("max_input_chars_per_word":1000000000)"),
              HasSubstr("max_input_chars_per_word"));
  EXPECT_THAT(message(R"("[UNK]":1)", R"("[UNK]":0)"), HasSubstr("two pieces have the id 0"));
  EXPECT_THAT(message(R"("[UNK]":1)", R"("[UNK]":-1)"), HasSubstr("has the id -1"));
  EXPECT_THAT(message(R"("[UNK]":1)", R"("[UNK]":99999999)"), HasSubstr("has the id 99999999"));
  EXPECT_THAT(message(R"("vocab":{)", R"("vocab":{"":700,)"), HasSubstr("is empty"));
  EXPECT_THAT(message(R"("vocab":{)", R"("vocab":{"x\u0000y":700,)"), HasSubstr("a table of 610 rows"));
  EXPECT_THAT(message(R"("vocab":{)", R"("vocab":7,"none":{)"), HasSubstr("not a tokenizer.json"));
}

class WordPieceFiles : public ::testing::Test {
 protected:
  /// The files as transformers had them before tokenizer.json.
  void write(std::string const& name, json::object const& tokenizer_config) {
    json::value const tokenizer = json::parse(word_piece_file(name + ".json"));
    std::map<std::int64_t, std::string> pieces;
    for (auto const& [text, id] : tokenizer.at("model").at("vocab").as_object()) {
      pieces[id.as_int64()] = std::string(text);
    }
    std::string lines;
    for (auto const& [id, text] : pieces) {
      lines += text + (id % 2 == 0 ? "\n" : "\r\n");
    }
    json::object added = tokenizer_config;
    for (json::value const& token : tokenizer.at("added_tokens").as_array()) {
      if (token.at("special") == false) {
        added["added_tokens_decoder"].emplace_object()[std::to_string(token.at("id").as_int64())] = token;
      }
    }
    directory_.write("vocab.txt", lines);
    directory_.write("tokenizer_config.json", json::serialize(added));
  }
  ForeignVocabulary read() {
    json::object const config{{"model_type", "bert"}, {"vocab_size", bert_rows}};
    return read_vocabulary(family_of(config), config, directory_.path());
  }

  TemporaryDirectory directory_;
};

TEST_F(WordPieceFiles, MayBeALineForEachPiece) {
  write("uncased", {});
  ForeignVocabulary const uncased = read();
  Tokenizer const tokenizer = Tokenizer::from_model(uncased.source_model);
  EXPECT_EQ(tokenizer.special_ids(), bert_ids);
  EXPECT_EQ(tokenizer.size(), bert_rows);
  EXPECT_THAT(pieces_of(tokenizer, "A MAN"), ElementsAre("a", "man"));
  EXPECT_EQ(uncased.files.at("vocab.txt"), read_whole(directory_ / "vocab.txt"));
  write("cased", {{"do_lower_case", false}});
  Tokenizer const cased = Tokenizer::from_model(read().source_model);
  EXPECT_EQ(cased.encode("A man M\u00e4n"), word_pieces("cased").encode("A man M\u00e4n"));
}

TEST_F(WordPieceFiles, MayBeATokenizerJson) {
  write("uncased", {});
  directory_.write("tokenizer.json", word_piece_file("uncased.json"));
  Tokenizer const tokenizer = Tokenizer::from_model(read().source_model);
  EXPECT_EQ(tokenizer.special_ids(), bert_ids);
  expect_golden_word_pieces(tokenizer, "uncased");
}

TEST_F(WordPieceFiles, WithoutTheirSpecialPiecesAreRefused) {
  directory_.write("vocab.txt", "[PAD]\n[UNK]\nman\n\n[SEP]");
  EXPECT_THAT(message_of<DataError>([&] { Tokenizer::from_model(read().source_model); }), HasSubstr("\"begin\""));
  directory_.write("vocab.txt", "[PAD]\n[CLS]\nman\n\n[SEP]");
  EXPECT_THAT(message_of<DataError>([&] { Tokenizer::from_model(read().source_model); }), HasSubstr("\"[UNK]\""));
  directory_.write("vocab.txt", "[UNK]\n[CLS]\xff\n[CLS]\n[SEP]");
  EXPECT_EQ(Tokenizer::from_model(read().source_model).special_ids().begin, 2);
}

}  // namespace
}  // namespace heddle
