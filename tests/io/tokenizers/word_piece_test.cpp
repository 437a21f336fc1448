#include <boost/json.hpp>
#include <heddle/io/tokenizers/tokenizer.hpp>
#include <heddle/io/vocabularies/tokenizer_json.hpp>
#include <heddle/io/vocabularies/vocabulary_files.hpp>

#include "exchange_file.hpp"

// The golden files were written by Hugging Face's tokenizers: see word_piece.py beside them.

namespace heddle {
namespace {

namespace json = boost::json;

constexpr SpecialIds bert_ids{.begin = 2, .end = 3, .unknown = 1, .padding = 0, .mask = 4};
constexpr std::int64_t bert_rows = 610;

std::string word_piece_file(std::string const& name) {
  return exchange_file("word_piece_" + name);
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

TEST(WordPiece, HasTheIdsAndTextsOfTheOtherSystem) {
  expect_golden_ids(word_pieces("uncased"), "word_piece", "uncased", "uncased.txt");
  expect_golden_ids(word_pieces("cased"), "word_piece", "cased", "cased.txt");
}

TEST(WordPiece, NeitherReadsNorWritesSpecialPieces) {
  Tokenizer const tokenizer = word_pieces("cased");
  EXPECT_EQ(tokenizer.special_ids(), bert_ids);
  EXPECT_EQ(tokenizer.size(), bert_rows);
  EXPECT_EQ(tokenizer.piece(4), "[MASK]");
  EXPECT_EQ(tokenizer.piece(609), "<madeupword609>");
  auto ids = tokenizer.encode("[MASK] man");
  std::string const text = tokenizer.decode(ids);
  EXPECT_THAT(text, StartsWith("[ "));
  EXPECT_THAT(ids, Each(AllOf(::testing::Ge(5), ::testing::Lt(605))));
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
  EXPECT_THAT(pieces_of(accents, "MAN m\u00e4n"), Contains("man"));
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
  expect_contains(message(R"("type":"BertNormalizer")", R"("type":"BartNormalizer")"), "normalizer");
  expect_contains(message(R"("type":"BertPreTokenizer")", R"("type":"BartPreTokenizer")"), "pre_tokenizer");
  expect_contains(message(R"("decoder":{"type":"WordPiece")", R"("decoder":{"type":"ByteLevel")"), "decoder");
  expect_contains(message(R"("unk_token":"[UNK]")", R"("unk_token":"<unk>")"), "unknown piece \"<unk>\"");
  expect_contains(message(R"("unk_token":"[UNK]",)", ""), "not a tokenizer.json");
  expect_contains(message(R"("max_input_chars_per_word":100)", R"("max_input_chars_per_word":1000000000)"),
                  "max_input_chars_per_word");
  expect_contains(message(R"("[UNK]":1)", R"("[UNK]":0)"), "two pieces have the id 0");
  expect_contains(message(R"("[UNK]":1)", R"("[UNK]":-1)"), "has the id -1");
  expect_contains(message(R"("[UNK]":1)", R"("[UNK]":99999999)"), "has the id 99999999");
  expect_contains(message(R"("vocab":{)", R"("vocab":{"":700,)"), "is empty");
  expect_contains(message(R"("vocab":{)", R"("vocab":{"x\u0000y":700,)"), "a table of 610 rows");
  expect_contains(message(R"("vocab":{)", R"("vocab":7,"none":{)"), "not a tokenizer.json");
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
  expect_golden_ids(tokenizer, "word_piece", "uncased", "uncased.txt");
}

TEST_F(WordPieceFiles, WithoutTheirSpecialPiecesAreRefused) {
  directory_.write("vocab.txt", "[PAD]\n[UNK]\nman\n\n[SEP]");
  expect_data_error([&] { Tokenizer::from_model(read().source_model); }, "\"begin\"");
  directory_.write("vocab.txt", "[PAD]\n[CLS]\nman\n\n[SEP]");
  expect_data_error([&] { Tokenizer::from_model(read().source_model); }, "\"[UNK]\"");
  directory_.write("vocab.txt", "[UNK]\n[CLS]\xff\n[CLS]\n[SEP]");
  EXPECT_EQ(Tokenizer::from_model(read().source_model).special_ids().begin, 2);
}

}  // namespace
}  // namespace heddle
