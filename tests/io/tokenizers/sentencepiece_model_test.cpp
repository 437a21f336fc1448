#include <heddle/io/tokenizers/sentencepiece_model.hpp>
#include <heddle/io/tokenizers/tokenizer.hpp>
#include <heddle/io/vocabularies/foreign_vocabularies.hpp>

#include "exchange_file.hpp"

namespace heddle {
namespace {

using Type = SentencePiece::Type;

std::string golden(std::string const& name) {
  return exchange_file("sentencepiece_" + name);
}

/// Expects that the model reads the golden lines as the other system does.
void expect_ids(std::string const& name, std::string const& model) {
  expect_golden_ids(Tokenizer::from_model(model), "sentencepiece", name, "");
}

std::pair<std::string, std::string> marian() {
  return marian_vocabulary(golden("source.model"), golden("target.model"), golden("marian.json"));
}

TEST(SentencePieceModel, IsWrittenAsItWasRead) {
  for (char const* const name : {"t5.model", "bpe.model", "bytes.model", "source.model", "target.model"}) {
    std::string const bytes = golden(name);
    auto const model = SentencePieceModel::parse(bytes);
    EXPECT_GE(model.pieces.size(), 200U);
    EXPECT_EQ(model.serialize(), bytes) << name;
    std::string const unknown_fields("\xa2\x06\x03\x0a\x01z\xad\x06\x01\x02\x03\x04", 12);
    EXPECT_EQ(SentencePieceModel::parse(bytes + unknown_fields).serialize(), bytes + unknown_fields);
  }
  EXPECT_TRUE(SentencePieceModel::parse(golden("bytes.model")).bpe());
  EXPECT_FALSE(SentencePieceModel::parse(golden("t5.model")).bpe());
}

TEST(ForeignVocabulary, HasTheIdsOfTheOtherSystem) {
  expect_ids("t5", t5_vocabulary(golden("t5.model"), 3));
  expect_ids("bpe", fairseq_vocabulary(golden("bpe.model"), {{"eng_Latn", "deu_Latn"}}));
  expect_ids("bytes", fairseq_vocabulary(golden("bytes.model"), {}));
  auto const [source, target] = marian();
  expect_ids("source", source);
  expect_ids("target", target);
  expect_ids("m2m100", m2m100_vocabulary(golden("bpe.model"), golden("m2m100.json"), {"en", "de"}));
}

TEST(ForeignVocabulary, OfT5StartsFromPaddingAndEndsWithSentinels) {
  auto const plain = SentencePieceModel::parse(golden("t5.model"));
  auto const count = static_cast<std::int32_t>(plain.pieces.size());
  auto const tokenizer = Tokenizer::from_model(t5_vocabulary(golden("t5.model"), 3, count + 5));
  EXPECT_EQ(tokenizer.special_ids(), (SpecialIds{.begin = 0, .end = 1, .unknown = 2, .padding = 0}));
  EXPECT_THAT(tokenizer.sentinels(), ElementsAre(count + 2, count + 1, count));
  EXPECT_EQ(tokenizer.size(), count + 5);
  EXPECT_EQ(tokenizer.piece(count + 4), "<madeupword1>");
  auto ids = tokenizer.encode("a man and a dog");
  ids.insert(ids.begin(), {0, count});
  EXPECT_EQ(tokenizer.decode(ids), "a man and a dog");
}

TEST(ForeignVocabulary, OfPegasusIsItsModelsWithAnOffset) {
  auto const plain = Tokenizer::from_model(t5_vocabulary(golden("t5.model"), 0));
  auto const tokenizer = Tokenizer::from_model(pegasus_vocabulary(golden("t5.model")));
  EXPECT_EQ(tokenizer.special_ids(), (SpecialIds{.begin = 0, .end = 1, .unknown = 105, .padding = 0}));
  EXPECT_EQ(tokenizer.piece(4), "<unk_2>");
  EXPECT_EQ(tokenizer.piece(104), "<unk_102>");
  for (auto const& line : lines_of(golden("lines.txt"))) {
    auto ids = plain.encode(line);
    std::ranges::for_each(ids, [](std::int32_t& id) { id += 103; });
    EXPECT_EQ(tokenizer.encode(line), ids);
  }
  EXPECT_THROW(pegasus_vocabulary(golden("t5.model"), 1), DataError);
}

TEST(ForeignVocabulary, MayBeAModelAsItIsWithAddedTokens) {
  auto const tokenizer = Tokenizer::from_model(extended_vocabulary(golden("bytes.model"), {"<turn>"}, 452));
  EXPECT_EQ(tokenizer.special_ids(), (SpecialIds{.begin = 1, .end = 2, .unknown = 0, .padding = -1}));
  EXPECT_EQ(tokenizer.piece(450), "<turn>");
  EXPECT_EQ(tokenizer.size(), 452);
  auto const plain = Tokenizer::from_model(golden("bytes.model"));
  for (auto const& line : lines_of(golden("lines.txt") + "<turn>\n")) {
    EXPECT_EQ(tokenizer.encode(line), plain.encode(line));
  }
  EXPECT_EQ(Tokenizer::from_model(extended_vocabulary(golden("t5.model"), {"<s>"})).special_ids().padding, 0);
}

TEST(ForeignVocabulary, OfFairseqHasLanguagesAndMask) {
  auto const count = std::ssize(SentencePieceModel::parse(golden("bpe.model")).pieces);
  auto const tokenizer = Tokenizer::from_model(
      fairseq_vocabulary(golden("bpe.model"), {{"eng_Latn", "deu_Latn"}, "<mask>", "</s>"}, count + 6));
  auto const first = static_cast<std::int32_t>(count + 1);
  EXPECT_EQ(tokenizer.special_ids(), (SpecialIds{.begin = 2, .end = 2, .unknown = 3, .padding = 1, .mask = first + 2}));
  EXPECT_EQ(tokenizer.piece(first), "eng_Latn");
  EXPECT_EQ(tokenizer.piece(first + 1), "deu_Latn");
  EXPECT_EQ(tokenizer.size(), count + 6);
  EXPECT_EQ(Tokenizer::from_model(fairseq_vocabulary(golden("bpe.model"), {{}, "", "<s>"})).special_ids(),
            (SpecialIds{.begin = 0, .end = 2, .unknown = 3, .padding = 1}));
}

TEST(ForeignVocabulary, OfMarianIsOneForBothSides) {
  auto const [source, target] = marian();
  auto const texts = pieces_of_vocab_json(golden("marian.json"));
  Vocabulary const vocabulary{Tokenizer::from_model(source), Tokenizer::from_model(target)};
  EXPECT_NE(source, target);
  EXPECT_TRUE(vocabulary.joint());
  ASSERT_EQ(vocabulary.source.size(), std::ssize(texts));
  for (std::int32_t id = 0; id < vocabulary.source.size(); ++id) {
    EXPECT_EQ(vocabulary.source.piece(id), texts[static_cast<std::size_t>(id)]);
  }
  std::int32_t const padding = vocabulary.source.size() - 1;
  EXPECT_EQ(vocabulary.target.special_ids(),
            (SpecialIds{.begin = padding, .end = 0, .unknown = 1, .padding = padding}));
  // Pieces of the other side are decoded, language codes are not.
  auto const alone = [&](Tokenizer const& side, char const* name) {
    auto const pieces = SentencePieceModel::parse(golden(name)).pieces;
    for (std::int32_t id = 2;; ++id) {
      std::string const piece = side.piece(id);
      if (piece.starts_with("▁") && piece.size() > 5 &&
          std::ranges::find(pieces, piece, &SentencePiece::text) == pieces.end()) {
        return id;
      }
    }
  };
  std::int32_t const english = alone(vocabulary.source, "target.model");
  std::int32_t const german = alone(vocabulary.source, "source.model");
  std::int32_t const code = padding - 1;
  std::string const space = "▁";
  std::string const text = texts[static_cast<std::size_t>(english)].substr(space.size()) + " " +
                           texts[static_cast<std::size_t>(german)].substr(space.size()) + " " +
                           texts[static_cast<std::size_t>(english)].substr(space.size());
  EXPECT_EQ(vocabulary.source.piece(code), ">>deu<<");
  for (Tokenizer const* const side : {&vocabulary.source, &vocabulary.target}) {
    EXPECT_EQ(side->decode(std::vector{code, english, german, english}), text);
  }
  std::string const word = vocabulary.target.piece(english).substr(space.size());
  EXPECT_EQ(vocabulary.target.decode(std::vector{english, english}), word + " " + word);
}

TEST(ForeignVocabulary, IsJointIfEachIdIsTheSamePieceForTheSameUse) {
  auto const joint = [](std::string const& source, std::string const& target) {
    return Vocabulary{Tokenizer::from_model(source), Tokenizer::from_model(target)}.joint();
  };
  auto const t5 = [](std::int64_t rows) { return t5_vocabulary(golden("t5.model"), 3, rows); };
  EXPECT_TRUE(joint(t5(303), t5(0)));
  EXPECT_FALSE(joint(t5(303), t5(304)));
  EXPECT_FALSE(joint(t5(303), t5_vocabulary(golden("t5.model"), 2, 303)));
  auto const other_start = SentencePieceModel::parse(extended_vocabulary(golden("t5.model"), {"<s>"}));
  auto const pieces = other_start.pieces;
  EXPECT_FALSE(
      joint(other_start.serialize(), serialize_with_ids(other_start, pieces, {"<pad>", "</s>", "<unk>", "<pad>"})));
}

TEST(ForeignVocabulary, ReadsNoTextAsAControlPiece) {
  auto const texts = pieces_of_vocab_json(golden("marian.json"));
  SpecialPieces const special{"<pad>", "</s>", "<unk>", "<pad>"};
  auto const last = [&](std::vector<std::string> const& control) {
    auto const tokenizer = Tokenizer::from_model(vocabulary_by_text(golden("source.model"), texts, control, special));
    return tokenizer.piece(tokenizer.encode("日").back());
  };
  EXPECT_EQ(last({}), "日");
  EXPECT_EQ(last({"日"}), "<unk>");
}

TEST(ForeignVocabulary, ReadsPiecesWithoutIdAsUnknown) {
  auto const texts = pieces_of_vocab_json(golden("marian.json"));
  auto const without_id = [&](SentencePiece const& piece) {
    return piece.type == Type::normal && piece.text.starts_with("▁") && piece.text.size() > 4 &&
           std::ranges::find(texts, piece.text) == texts.end();
  };
  auto const pieces = SentencePieceModel::parse(golden("source.model")).pieces;
  auto const piece = std::ranges::find_if(pieces, without_id);
  ASSERT_NE(piece, pieces.end());
  std::string const word = piece->text.substr(std::string_view("▁").size());
  ASSERT_EQ(Tokenizer::from_model(golden("source.model")).encode(word).size(), 1U);
  auto const tokenizer = Tokenizer::from_model(marian().first);
  EXPECT_THAT(tokenizer.encode(word), ElementsAre(tokenizer.special_ids().unknown));
  EXPECT_THAT(tokenizer.encode(word + " " + word),
              ElementsAre(tokenizer.special_ids().unknown, tokenizer.special_ids().unknown));
}

TEST(ForeignVocabulary, HasNoIdsAfterItsLastOne) {
  auto model = SentencePieceModel::parse(m2m100_vocabulary(golden("bpe.model"), golden("m2m100.json"), {"en"}));
  auto const marker = std::ranges::find(model.pieces, std::string(end_of_ids_piece), &SentencePiece::text);
  ASSERT_NE(marker, model.pieces.end());
  std::rotate(model.pieces.begin() + 10, marker, marker + 1);  // a file that lies: words are after its last id
  auto const tokenizer = Tokenizer::from_model(model.serialize());
  ASSERT_EQ(tokenizer.size(), 10);
  EXPECT_THAT(tokenizer.encode("30"), ElementsAre(::testing::_, tokenizer.special_ids().unknown));
  for (auto const& line : lines_of(golden("lines.txt"))) {
    EXPECT_THAT(tokenizer.encode(line), Each(::testing::Lt(10)));
  }
}

TEST(ForeignVocabulary, RefusesWhatTextsWouldBeReadOtherwiseWith) {
  auto const model = SentencePieceModel::parse(golden("bpe.model"));
  SpecialPieces const special{"<s>", "</s>", "<unk>", ""};
  auto const refusal = [&](auto const& change, SpecialPieces const& names) {
    auto pieces = model.pieces;
    change(pieces);
    return message_of<DataError>([&] { serialize_with_ids(model, pieces, names); });
  };
  EXPECT_NO_THROW(serialize_with_ids(model, model.pieces, special));
  expect_contains(refusal([](auto& pieces) { pieces.pop_back(); }, special), "has no id");
  expect_contains(refusal([](auto& pieces) { pieces.back().score -= 1; }, special), "another score");
  expect_contains(refusal([](auto& pieces) { pieces.back().type = Type::control; }, special), "has no id");
  expect_contains(refusal([](auto& pieces) { pieces.back().type = Type::user_defined; }, special), "has no id");
  expect_contains(refusal([](auto& pieces) { pieces.push_back(pieces.back()); }, special), "two ids: 299 and");
  expect_contains(refusal(
                      [](auto& pieces) {
                        pieces.push_back({"new", 0, Type::normal, {}});
                      },
                      special),
                  "id 300: the SentencePiece model has no piece \"new\"");
  expect_contains(refusal(
                      [](auto& pieces) {
                        pieces.push_back({"new", 0, Type::unused, {}});
                      },
                      special),
                  "id 300: the SentencePiece model has no piece \"new\"");
  expect_contains(refusal(
                      [](auto& pieces) {
                        pieces.push_back({"?", 0, Type::unknown, {}});
                      },
                      special),
                  "more than one unknown piece");
  auto const nothing = [](auto&) {};
  expect_contains(refusal(nothing, {"", "</s>", "<unk>", ""}), "no special piece \"\"");
  expect_contains(refusal(nothing, {"<start>", "</s>", "<unk>", ""}), "no special piece \"<start>\"");
  expect_contains(refusal(nothing, {"<s>", "</s>", "<s>", ""}), "no special piece \"<s>\"");
  expect_contains(refusal(nothing, {"<s>", "</s>", "<unk>", "<pad>"}), "no special piece \"<pad>\"");
}

TEST(ForeignVocabulary, RefusesIdsThatDoNotFit) {
  EXPECT_THROW(t5_vocabulary(golden("t5.model"), -1), DataError);
  EXPECT_THROW(t5_vocabulary(golden("t5.model"), std::int64_t{1} << 40), DataError);
  EXPECT_THROW(t5_vocabulary(golden("t5.model"), 3, 302), DataError);
  EXPECT_THROW(t5_vocabulary(golden("t5.model"), 3, std::int64_t{1} << 40), DataError);
  // T5's model begins with <pad>, </s>, <unk>; fairseq's map wants the first ordinary piece at index 3.
  auto early = SentencePieceModel::parse(golden("bpe.model"));
  std::swap(early.pieces[2], early.pieces[5]);
  EXPECT_THROW(fairseq_vocabulary(early.serialize(), {}), DataError);
  for (char const* const wrong :
       {"", "[]", "{\"a\": 0, \"b\": 2}", "{\"a\": 0, \"b\": 0}", "{\"a\": -1}", "{\"a\": \"0\"}", "{\"a\": 0.5}",
        "{\"a\": 0, \"a\": 1}", "{\"a\": 99999999999999999999}"}) {
    EXPECT_THROW(pieces_of_vocab_json(wrong), DataError) << wrong;
  }
  EXPECT_THAT(pieces_of_vocab_json("{\"b\": 1, \"a\": 0}"), ElementsAre("a", "b"));
  std::string json = golden("marian.json");
  json.erase(json.find(">>deu<<"), 7);
  EXPECT_THROW(marian_vocabulary(golden("source.model"), golden("target.model"), json), DataError);
}

TEST(SentencePieceModel, RefusesBytesThatAreNone) {
  auto const message = [](std::string const& bytes) {
    return message_of<DataError>([&] { SentencePieceModel::parse(bytes); });
  };
  auto const piece = [](std::string const& fields) {
    return std::string("\x0a") + static_cast<char>(fields.size()) + fields;
  };
  expect_contains(message(""), "no pieces");
  expect_contains(message("\x0a"), "1 bytes where 0 are left");
  expect_contains(message("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), "where 0 are left");
  expect_contains(message(std::string("\x0a") + std::string(10, '\xff')), "more than 64 bits");
  expect_contains(message(std::string("\x0a") + std::string(9, '\x80') + "\x02"), "more than 64 bits");
  expect_contains(message(std::string("\x02\x00", 2)), "tag 2");
  expect_contains(message("\x82\x80\x80\x80\x80\x01"), "tag 34359738370");
  expect_contains(message("\x0b"), "wire type 3");
  expect_contains(message("\x08\x01"), "field 1 has wire type 0, not 2");
  expect_contains(message(piece("")), "is empty");
  expect_contains(message(piece("\x0a\x01z\x18\x07")), "type 7");
  expect_contains(message(piece("\x0a\x01z\x10\x01")), "field 2 has wire type 0, not 5");
  expect_contains(message(piece(std::string("\x0a\x01z\x15\x00\x00\xc0\x7f", 8))), "not a number");
  expect_contains(message(piece("\x0a\x01z") + "\x12\x01\x0a"), "1 bytes where 0 are left");
  EXPECT_EQ(SentencePieceModel::parse(piece("\x0a\x01z")).pieces.front().text, "z");
  std::string const extended = piece(std::string("\x0a\x01z\x15\x00\x00\x80\x3f\xc2\x0c\x01q", 12));
  EXPECT_EQ(SentencePieceModel::parse(extended).pieces.front().score, 1);
  EXPECT_EQ(SentencePieceModel::parse(extended).serialize(), extended);
}

TEST(SentencePieceModel, SurvivesDamagedBytes) {
  std::string const whole = golden("source.model");
  auto const attempt = [](std::string const& bytes) {
    try {
      return SentencePieceModel::parse(bytes).pieces.size();
    } catch (DataError const&) {
      return std::size_t{0};
    }
  };
  std::size_t const pieces = attempt(whole);
  std::size_t refused = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    EXPECT_LE(attempt(whole.substr(0, i)), pieces);
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x80);
    refused += attempt(damaged) == 0 ? 1 : 0;
  }
  EXPECT_GT(refused, whole.size() / 10);
}

/// A model whose normalizer has this map of characters: a double array of one block, and texts after it.
std::string with_map(std::vector<std::uint32_t> const& first_units, std::string const& texts) {
  std::vector<std::uint32_t> units = first_units;
  units.resize(256);
  std::string map;
  auto const add = [&](std::uint32_t word) {
    for (unsigned shift = 0; shift < 32; shift += 8) {
      map += static_cast<char>(word >> shift);
    }
  };
  add(4 * static_cast<std::uint32_t>(units.size()));
  std::ranges::for_each(units, add);
  map += texts;
  auto const field = [](char tag, std::string const& payload) {
    std::size_t const size = payload.size();
    return std::string{tag, static_cast<char>(size % 128 + 128), static_cast<char>(size / 128)} + payload;
  };
  return field('\x1a', field('\x12', map));
}

TEST(SentencePieceModel, ACharacterMapThatPointsOutsideItselfIsRefused) {
  std::uint32_t const ends = 1U << 8U;
  std::uint32_t const place = 1U << 31U;
  auto const message = [](std::vector<std::uint32_t> const& units, std::string const& texts) {
    return message_of<DataError>([&] { require_sound_normalizers(with_map(units, texts)); });
  };
  EXPECT_EQ(message({0, 'a' | ends | 2U << 10U, 0, place | 2}, "xyz"), "");
  expect_contains(message({0, 'a' | ends | 2U << 10U, 0, place | 3}, "xyz"), "outside itself at unit 1");
  expect_contains(message({0, 'a' | ends | 256U << 10U}, "xyz"), "outside itself at unit 1");
  expect_contains(message({1U << 9U | 1U << 10U}, "xyz"), "outside itself at unit 0");
  expect_data_error([] { require_sound_normalizers("\x1a\x04\x12\x02\xff\xff"); }, "ends before its units");
  expect_data_error([&] { Tokenizer::from_model(golden("t5.model") + with_map({1U << 20U}, "xyz")); },
                    "outside itself");
}

}  // namespace
}  // namespace heddle
