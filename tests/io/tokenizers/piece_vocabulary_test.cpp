#include <boost/json.hpp>
#include <heddle/io/tokenizers/tokenizer.hpp>
#include <heddle/io/vocabularies/added_pieces.hpp>

#include "exchange_file.hpp"

// The golden files were written by transformers 5: see piece_vocabularies.py beside them.

namespace heddle {
namespace {

namespace json = boost::json;

constexpr SpecialIds piece_ids_of_t5{.begin = 0, .end = 1, .unknown = 2, .padding = 0};

json::value pieces_file(std::string const& name) {
  return json::parse(exchange_file("pieces_" + name + ".json"));
}

Tokenizer piece_tokenizer(json::value const& document, SpecialIds const& ids = piece_ids_of_t5) {
  return Tokenizer::from_model(byte_level_vocabulary(json::serialize(document), ids, 600));
}

/// The message that a tokenizer.json is refused with after a change.
template <class Change>
std::string refusal(std::string const& name, Change const& change) {
  json::value document = pieces_file(name);
  change(document.as_object());
  return message_of<DataError>([&] { piece_tokenizer(document); });
}

class PieceVocabularyFile : public ::testing::TestWithParam<char const*> {};

TEST_P(PieceVocabularyFile, HasTheIdsAndTextsOfTheOtherSystem) {
  Tokenizer const tokenizer = piece_tokenizer(pieces_file(GetParam()), {.begin = 0, .end = 1});
  json::array const lines = pieces_file("lines").as_array();
  json::array const golden = pieces_file(std::string(GetParam()) + ".ids").as_array();
  ASSERT_GT(lines.size(), 30U);
  ASSERT_EQ(lines.size(), golden.size());
  for (std::size_t line = 0; line < lines.size(); ++line) {
    auto const ids = tokenizer.encode(json::value_to<std::string>(lines[line]));
    EXPECT_EQ(json::value_from(ids), golden[line].at(0)) << lines[line];
    EXPECT_EQ(json::value(tokenizer.decode(ids)), golden[line].at(1)) << lines[line];
  }
}

INSTANTIATE_TEST_SUITE_P(, PieceVocabularyFile,
                         ::testing::Values("t5", "nllb", "llama", "llama2", "gemma", "first", "steps"));

TEST(PieceVocabulary, ReadsNoTextAsASpecialPiece) {
  Tokenizer const tokenizer = piece_tokenizer(pieces_file("t5"));
  auto ids = tokenizer.encode("</s> man <extra_id_0>");
  EXPECT_THAT(ids, Not(Contains(1)));
  EXPECT_THAT(ids, Not(Contains(tokenizer.sentinels().at(0))));
  EXPECT_EQ(tokenizer.sentinels().size(), 3U);
  EXPECT_EQ(tokenizer.piece(tokenizer.sentinels().at(2)), "<extra_id_2>");
  EXPECT_EQ(tokenizer.piece(599), "<madeupword599>");
  ids = tokenizer.encode("a man");
  ids.insert(ids.begin(), {0, 599});
  ids.push_back(1);
  EXPECT_EQ(tokenizer.decode(ids), "a man");
}

TEST(PieceVocabulary, UnknownBytesAreReplacedFirst) {
  Tokenizer const tokenizer = piece_tokenizer(pieces_file("llama"));
  EXPECT_EQ(tokenizer.encode("a\xff\xe2\x82z"), tokenizer.encode("a\ufffd\ufffdz"));
}

TEST(PieceVocabulary, BytesThatAreNoTextAreReplacedOneByOne) {
  Tokenizer const tokenizer = piece_tokenizer(pieces_file("llama"));
  auto const ids = tokenizer.encode("日");
  ASSERT_GE(ids.size(), 3U);
  EXPECT_EQ(tokenizer.decode(std::span(ids).last(2)), "\ufffd\ufffd");
}

TEST(PieceVocabulary, UnigramScoresAreAddedInDoublePrecision) {
  json::value document = pieces_file("t5");
  document.as_object()["normalizer"] = nullptr;
  document.at("model").as_object()["vocab"] = json::parse(
      R"([["<pad>", 0], ["</s>", 0], ["<unk>", 0], ["▁", -1], ["x", -1.1], ["xx", -2.2], ["xxx", -3.30000001]])");
  document.as_object()["added_tokens"] = json::array();
  // "x" and "xx" twice have equal sums: the longer piece comes first, and then no sum is larger.
  EXPECT_THAT(piece_tokenizer(document).encode("xx"), ElementsAre(3, 5));
  EXPECT_THAT(piece_tokenizer(document).encode("xxx"), ElementsAre(3, 4, 5));
}

TEST(PieceVocabulary, MayTakeWordsWhole) {
  json::value document = pieces_file("gemma");
  json::object& model = document.at("model").as_object();
  model["merges"] = json::array();
  Tokenizer const split = piece_tokenizer(document);
  model["ignore_merges"] = true;
  Tokenizer const whole = piece_tokenizer(document);
  std::string const word = "ing";
  ASSERT_TRUE(model.at("vocab").as_object().contains(word));
  EXPECT_EQ(split.encode(word).size(), 3U);
  EXPECT_EQ(whole.encode(word).size(), 1U);
}

TEST(PieceVocabulary, AddedTokensMayTakeTheSpaceAroundThem) {
  json::value document = pieces_file("llama");
  json::array& added = document.at("added_tokens").as_array();
  auto const add = [&](std::int64_t id, char const* content, char const* option) {
    added.push_back({{"id", id}, {"content", content}, {"special", false}, {"normalized", false}, {option, true}});
  };
  add(500, "  ", "rstrip");
  add(501, "<l>", "lstrip");
  add(502, "<w>", "single_word");
  Tokenizer const tokenizer = piece_tokenizer(document);
  EXPECT_THAT(tokenizer.encode("  \t "), ElementsAre(500));
  EXPECT_THAT(tokenizer.encode("\u3000 <l>"), ElementsAre(501));
  EXPECT_THAT(tokenizer.encode("<w>"), ElementsAre(502));
  EXPECT_THAT(tokenizer.encode("<w>-<w>1 é<w>"), AllOf(Contains(502).Times(1)));
}

TEST(PieceVocabulary, GrowsByPiecesAndLanguages) {
  json::value document = pieces_file("nllb");
  json::object form{{"source", {{"language", "first"}, {"default_language", -1}, {"prefix", json::array()}}},
                    {"languages", {281, 282}},
                    {"forced", json::array()},
                    {"suppressed", json::array()},
                    {"suppressed_first", json::array()}};
  form["target"] = form["source"];
  json::value model = json::parse(byte_level_vocabulary(json::serialize(document), {.begin = 2, .end = 2}, 284));
  model.at("heddle").as_object()["form"] = form;
  Tokenizer const before = Tokenizer::from_model(json::serialize(model));
  Tokenizer const grown = with_languages(with_pieces(before, {"Fjord X"}), {"swe_Latn"});
  EXPECT_EQ(grown.size(), before.size() + 2);
  EXPECT_THAT(grown.encode("a Fjord Xa"), Contains(before.size()));
  EXPECT_EQ(grown.encode("a man"), before.encode("a man"));
  EXPECT_EQ(grown.piece(285), "swe_Latn");
  EXPECT_EQ(grown.form().languages.back(), 285);
  EXPECT_THAT(grown.encode("swe_Latn"), Not(Contains(285)));
}

TEST(PieceVocabulary, AHostileFileTakesNoMoreThanItsShare) {
  json::value document = pieces_file("t5");
  json::object const tenfold{{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aaaaaaaaaa"}};
  document.as_object()["normalizer"] = {{"type", "Sequence"}, {"normalizers", json::array(12, tenfold)}};
  Tokenizer const tokenizer = piece_tokenizer(document);
  expect_data_error([&] { tokenizer.encode("a man"); }, "bytes of a text of 5");
  expect_contains(
      refusal("t5",
              [](json::object& file) { file.at("model").at("vocab").as_array().at(7).at(0) = std::string(1025, 'a'); }),
      "a piece has 1025 bytes");
  json::value twofold = json::parse(
      R"({"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}]})");
  json::array& steps = twofold.at("decoders").as_array();
  steps.insert(steps.end(), 25, json::value(steps.front()));
  document = pieces_file("t5");
  document.as_object()["decoder"] = twofold;
  Tokenizer const decoding = piece_tokenizer(document);
  expect_data_error([&] { decoding.decode(decoding.encode("a man")); }, "decoder makes");
}

TEST(PieceVocabulary, LongReplacementsAndManyExpressionsAreRefused) {
  json::value replace{{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(1025, 'b')}};
  for (char const* const member : {"normalizer", "decoder"}) {
    expect_contains(refusal("t5", [&](json::object& file) { file[member] = replace; }), "puts 1025 bytes");
  }
  json::object const strip{{"type", "Strip"}, {"content", ""}, {"start", 9223372036854775807}, {"stop", 0}};
  expect_contains(refusal("t5", [&](json::object& file) { file["decoder"] = strip; }), "decoder = ");
  json::object const split{
      {"type", "Split"}, {"pattern", {{"Regex", "a"}}}, {"behavior", "Isolated"}, {"invert", false}};
  auto const splits = [&](std::size_t count) {
    return json::object{{"type", "Sequence"}, {"pretokenizers", json::array(count, split)}};
  };
  expect_contains(refusal("t5", [&](json::object& file) { file["pre_tokenizer"] = splits(17); }), "17 regular");
  EXPECT_EQ(refusal("t5", [&](json::object& file) { file["pre_tokenizer"] = splits(16); }), "");
  replace.as_object()["content"] = "";
  replace.as_object()["pattern"] = json::object{{"Regex", "a"}};
  json::object const normalizers{{"type", "Sequence"}, {"normalizers", json::array(17, replace)}};
  expect_contains(refusal("t5", [&](json::object& file) { file["normalizer"] = normalizers; }), "17 regular");
}

TEST(PieceVocabulary, TheTimeOfItsExpressionsIsThatOfOneText) {
  json::value document = pieces_file("t5");
  document.as_object()["pre_tokenizer"] = json::parse(R"({"type": "Sequence", "pretokenizers": [
      {"type": "WhitespaceSplit"},
      {"type": "Split", "pattern": {"Regex": "(a+)+b"}, "behavior": "Isolated", "invert": false}]})");
  std::string text;
  for (int word = 0; word < 300; ++word) {
    text += std::string(18, 'a') + " ";
  }
  Tokenizer const tokenizer = piece_tokenizer(document);
  expect_data_error([&] { tokenizer.encode(text); }, "it takes too long");
}

TEST(PieceVocabulary, SpacesThatAnAddedTokenTookAreLookedAtOnce) {
  json::value document = pieces_file("llama");
  document.at("added_tokens")
      .as_array()
      .push_back({{"id", 500}, {"content", " "}, {"special", false}, {"normalized", false}, {"rstrip", true}});
  Tokenizer const tokenizer = piece_tokenizer(document);
  std::size_t const spaces = 300'000;  // squared: minutes
  EXPECT_EQ(tokenizer.encode(std::string(spaces, ' ')).size(), spaces) << "as transformers has it";
}

TEST(PieceVocabulary, RefusesTokenizersThatDoMore) {
  auto const set = [](char const* member, char const* text) {
    return [=](json::object& document) { document[member] = json::parse(text); };
  };
  expect_contains(refusal("t5", set("normalizer", R"({"type": "ByteLevel"})")), "normalizer = ");
  expect_contains(refusal("t5", set("pre_tokenizer", R"({"type": "UnicodeScripts"})")), "UnicodeScripts");
  expect_contains(refusal("t5", set("pre_tokenizer", R"({"type": "Metaspace", "replacement": "__"})")), "__");
  expect_contains(refusal("t5", set("decoder", R"({"type": "CTC"})")), "decoder = ");
  expect_contains(refusal("t5", set("normalizer", R"({"type": "Precompiled", "precompiled_charsmap": "*"})")),
                  "base 64");
  expect_contains(refusal("t5", set("normalizer", R"({"type": "Precompiled", "precompiled_charsmap": "AAAAAA=="})")),
                  "empty");
  expect_contains(refusal("steps",
                          [](json::object& document) {
                            document.at("added_tokens")
                                .as_array()
                                .push_back({{"id", 590}, {"content", "\u0301"}, {"normalized", true}});
                          }),
                  "added_tokens = ");
  auto const in_model = [](char const* member, json::value const& value) {
    return [=](json::object& document) { document.at("model").as_object()[member] = value; };
  };
  expect_contains(refusal("t5", in_model("unk_id", nullptr)), "model.unk_id = null");
  expect_contains(refusal("llama", in_model("dropout", 0.1)), "model.dropout");
  expect_contains(refusal("llama", in_model("type", "WordLevel")), "WordLevel");
  expect_contains(refusal("llama", in_model("unk_token", "nothing")), "\"nothing\" is missing");
  expect_contains(refusal("llama", in_model("merges", json::array{"a Q#"})), "a merge has");
}

}  // namespace
}  // namespace heddle
