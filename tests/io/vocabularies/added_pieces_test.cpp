#include <boost/json.hpp>
#include <heddle/io/tokenizers/text_form.hpp>
#include <heddle/io/vocabularies/added_pieces.hpp>
#include <heddle/io/vocabularies/foreign_vocabularies.hpp>
#include <heddle/io/vocabularies/tokenizer_json.hpp>

#include "exchange_file.hpp"

namespace heddle {
namespace {

namespace json = boost::json;

/// Vocabularies of every kind, by a name for messages.
std::vector<std::pair<std::string, Tokenizer>> vocabularies() {
  auto const spm = [](std::string const& name) { return exchange_file("sentencepiece_" + name); };
  auto const [source, target] = marian_vocabulary(spm("source.model"), spm("target.model"), spm("marian.json"));
  std::int64_t const t5_rows = Tokenizer::from_model(t5_vocabulary(spm("t5.model"), 3)).size() + 5;
  std::vector<std::pair<std::string, std::string>> const models{
      {"unigram", t5_vocabulary(spm("t5.model"), 3, t5_rows)},
      {"BPE", fairseq_vocabulary(spm("bpe.model"), {{"eng_Latn", "deu_Latn"}})},
      {"BPE with bytes", spm("bytes.model")},
      {"by text", source},
      {"M2M100", m2m100_vocabulary(spm("bpe.model"), spm("m2m100.json"), {"en", "de"})},
      {"byte-level BPE", byte_level_vocabulary(exchange_file("byte_level_bart.json"),
                                               {.begin = 2, .end = 2, .unknown = 3, .padding = 1}, 500)}};
  std::vector<std::pair<std::string, Tokenizer>> made;
  for (auto const& [name, model] : models) {
    made.emplace_back(name, Tokenizer::from_model(model));
  }
  return made;
}

TEST(AddedPieces, AreFoundAsWholesAndOtherTextsKeepTheirIds) {
  for (auto const& [name, before] : vocabularies()) {
    SCOPED_TRACE(name);
    std::vector<std::string> const pieces{"<2de>", "oman", "inging"};
    Tokenizer const now = with_pieces(before, pieces);
    ASSERT_EQ(now.size(), before.size() + 3);
    EXPECT_EQ(now.special_ids(), before.special_ids());
    for (std::int32_t id = 0; id < before.size(); ++id) {
      ASSERT_EQ(now.piece(id), before.piece(id));
    }
    for (std::int32_t index = 0; index < 3; ++index) {
      EXPECT_EQ(now.piece(before.size() + index), pieces[static_cast<std::size_t>(index)]);
    }
    for (std::string const text : {"<2de> a man", "a man<2de>", "a woman", "a foomanoman", "a man is singing inging"}) {
      auto const ids = now.encode(text);
      auto const expected =
          std::ranges::count_if(pieces, [&](auto const& piece) { return text.find(piece) != text.npos; });
      std::int64_t const found = std::ranges::count_if(
          std::vector{0, 1, 2}, [&](int index) { return std::ranges::count(ids, before.size() + index) > 0; });
      EXPECT_EQ(found, expected) << text;
    }
    EXPECT_EQ(std::ranges::count(now.encode("singing inging"), before.size() + 2), 2);
    EXPECT_EQ(now.decode(now.encode("a man <2de>")), before.decode(before.encode("a man")) + " <2de>");
    int compared = 0;
    for (std::string const& line : lines_of(exchange_file("sentencepiece_lines.txt"))) {
      bool const has_new = line.find("inging") != line.npos || line.find("oman") != line.npos;
      if (!has_new) {
        ++compared;
        EXPECT_EQ(now.encode(line), before.encode(line)) << line;
      }
    }
    EXPECT_GT(compared, 40);
    expect_data_error([&, &before = before] { with_pieces(before, {before.piece(before.size() - 50)}); }, "already");
    EXPECT_THROW(with_pieces(before, {"xyz", "xyz"}), DataError);
    EXPECT_THROW(with_pieces(before, {""}), DataError);
    EXPECT_EQ(with_pieces(now, {"again"}).size(), before.size() + 4) << "a second time";
  }
}

TEST(AddedPieces, MayStartAWord) {
  Tokenizer const before = Tokenizer::from_model(exchange_file("sentencepiece_bytes.model"));
  Tokenizer const now = with_pieces(before, {" zorro"});
  EXPECT_THAT(now.encode("a zorro"), Contains(before.size()));
  EXPECT_THAT(now.encode("zorro"), ElementsAre(before.size()));
  EXPECT_EQ(now.encode("azorro"), before.encode("azorro"));
  EXPECT_EQ(now.decode(now.encode("a zorro")), "a zorro");
}

TEST(AddedPieces, HaveAsPartsWhatTheOldVocabularyCuts) {
  for (auto const& [name, before] : vocabularies()) {
    SCOPED_TRACE(name);
    std::vector<std::int32_t> const parts = parts_of(before, "dogcat");
    EXPECT_GT(parts.size(), 1U);
    std::string text;
    for (std::int32_t const part : parts) {
      EXPECT_NE(before.piece(part), "▁");
      text += before.piece(part);
    }
    EXPECT_TRUE(text == "dogcat" || text == "▁dogcat") << text;
  }
}

TEST(AddedLanguages, AreOptionsOfTheVocabularyAndChangeNoText) {
  TextForm form;
  Tokenizer const plain =
      Tokenizer::from_model(fairseq_vocabulary(exchange_file("sentencepiece_bpe.model"), {{"eng_Latn", "deu_Latn"}}));
  for (std::int32_t id = 0; id < plain.size(); ++id) {
    if (is_language(plain.piece(id))) {
      form.languages.push_back(id);
    }
  }
  ASSERT_EQ(form.languages.size(), 2U);
  form.source.language = form.target.language = LanguagePosition::first;
  SentencePieceModel model = SentencePieceModel::parse(plain.model());
  model.text_form = to_json(form);
  Tokenizer const before = Tokenizer::from_model(model.serialize());
  Tokenizer const now = with_languages(with_pieces(before, {"oman"}), {"gsw_Latn", "als_Latn"});
  ASSERT_EQ(now.size(), before.size() + 3);
  TextFrame const frame = frame_of({now, now}, {"gsw_Latn", "deu_Latn"});
  EXPECT_THAT(frame.source, ElementsAre(before.size() + 1));
  EXPECT_EQ(frame_of({now, now}, {"eng_Latn", "als_Latn"}).start.back(), before.size() + 2);
  EXPECT_EQ(now.encode("gsw_Latn"), before.encode("gsw_Latn"));
  auto const refusal = [&](Tokenizer const& vocabulary, std::vector<std::string> const& names) {
    return message_of<DataError>([&] { with_languages(vocabulary, names); });
  };
  expect_contains(refusal(plain, {"gsw_Latn"}), "has no languages, so that none can be added");
  expect_contains(refusal(before, {"deu_Latn"}), "is a token of the vocabulary already, or given twice");
  expect_contains(refusal(before, {"gsw_Latn", "gsw_Latn"}), "given twice");
  expect_contains(refusal(before, {"swiss"}), "not named as the vocabulary's languages are: ");
  expect_contains(refusal(before, {"__gsw__"}), "not named as the vocabulary's languages are: ");
}

TEST(AddedPieces, AreAddedTokensOfTransformersFiles) {
  std::map<std::string, std::string> origin{
      {"config.json", R"({"vocab_size": 500, "d_model": 500, "decoder": {"vocab_size": 500}})"},
      {"tokenizer_config.json", R"({"tokenizer_class": "X", "added_tokens_decoder": {"7": {"content": "<a>"}}})"},
      {"tokenizer.json", exchange_file("byte_level_bart.json")}};
  Tokenizer const before = Tokenizer::from_model(
      byte_level_vocabulary(origin.at("tokenizer.json"), {.begin = 2, .end = 2, .unknown = 3, .padding = 1}, 500));
  add_pieces(origin, with_pieces(before, {"<2de>", "oman"}), 2);
  EXPECT_EQ(json::parse(origin.at("config.json")),
            json::parse(R"({"vocab_size": 502, "d_model": 500, "decoder": {"vocab_size": 502}})"));
  json::value const settings = json::parse(origin.at("tokenizer_config.json"));
  json::object const& added = settings.at("added_tokens_decoder").as_object();
  EXPECT_EQ(added.at("7"), json::parse(R"({"content": "<a>"})"));
  EXPECT_EQ(added.at("500").at("content"), "<2de>");
  EXPECT_EQ(added.at("501").at("content"), "oman");
  EXPECT_EQ(added.at("501").at("special"), false);
  json::value const tokenizer = json::parse(origin.at("tokenizer.json"));
  EXPECT_EQ(tokenizer.at("added_tokens").as_array().back().at("id"), 501);
  EXPECT_FALSE(tokenizer.as_object().contains("heddle"));
  std::map<std::string, std::string> none;
  add_pieces(none, before, 2);
  EXPECT_TRUE(none.empty());
}

TEST(AddedPieces, ComeBackFromRowsWithoutAUse) {
  std::string const spm = exchange_file("sentencepiece_t5.model");
  auto const filled =
      Tokenizer::from_model(t5_vocabulary(spm, 3, std::ssize(SentencePieceModel::parse(spm).pieces) + 6));
  std::int32_t const last = filled.size() - 1;
  auto const back = Tokenizer::from_model(with_added_tokens(filled.model(), {{last, "oman"}, {0, "zero"}}));
  EXPECT_THAT(back.encode("a woman"), Contains(last));
  EXPECT_EQ(back.piece(0), filled.piece(0)) << "it has a role";
  EXPECT_EQ(with_added_tokens(filled.model(), {}), filled.model());
}

}  // namespace
}  // namespace heddle
