#include <boost/json.hpp>
#include <heddle/io/tokenizers/sentencepiece_model.hpp>
#include <heddle/io/vocabularies/vocabulary_files.hpp>

#include "exchange_file.hpp"

namespace heddle {
namespace {

namespace json = boost::json;

/// The vocabulary of a directory of transformers with these files.
class TextFormTest : public testing::Test {
 protected:
  Vocabulary read(char const* family, json::object config) {
    config.emplace("is_encoder_decoder", true);
    auto const read = read_vocabulary(family_named(family), config, directory_.path());
    return {Tokenizer::from_model(read.source_model), Tokenizer::from_model(read.target_model)};
  }

  /// A vocabulary of fairseq's with languages.
  Vocabulary fairseq(char const* family, std::vector<std::string> const& languages, json::object tokenizer,
                     json::object const& generation = {}) {
    std::string const model = exchange_file("sentencepiece_bpe.model");
    std::int64_t const first = std::ssize(SentencePieceModel::parse(model).pieces) + 1;
    json::object added;
    for (std::string const& language : languages) {
      added[std::to_string(first + static_cast<std::int64_t>(added.size()))] = {{"content", language}};
    }
    tokenizer["added_tokens_decoder"] = added;
    directory_.write("sentencepiece.bpe.model", model);
    directory_.write("tokenizer_config.json", json::serialize(tokenizer));
    if (!generation.empty()) {
      directory_.write("generation_config.json", json::serialize(generation));
    }
    return read(family, {{"vocab_size", first + std::ssize(languages)}, {"decoder_start_token_id", 2}});
  }

  TemporaryDirectory directory_;
};

std::vector<std::string> pieces(Tokenizer const& tokenizer, std::vector<std::int32_t> const& ids) {
  std::vector<std::string> pieces;
  for (std::int32_t const id : ids) {
    pieces.push_back(tokenizer.piece(id));
  }
  return pieces;
}

TEST_F(TextFormTest, OfNllbHasLanguagesInFront) {
  Vocabulary const vocabulary = fairseq("m2m_100", {"eng_Latn", "deu_Latn"}, {{"tokenizer_class", "NllbTokenizer"}});
  TextFrame const frame = frame_of(vocabulary, {"eng_Latn", "deu_Latn"});
  EXPECT_THAT(pieces(vocabulary.source, frame.source), ElementsAre("eng_Latn"));
  EXPECT_THAT(pieces(vocabulary.target, frame.target), ElementsAre("deu_Latn"));
  EXPECT_THAT(pieces(vocabulary.target, frame.start), ElementsAre("</s>", "deu_Latn"));
  EXPECT_EQ(start_of(vocabulary, {frame.target.front(), 7}), frame.start);
  EXPECT_EQ(start_of(vocabulary, {7, 8}), std::vector{vocabulary.target.special_ids().begin});
  EXPECT_FALSE(vocabulary.special_ids().source.language_last);
  std::int32_t const padding = vocabulary.target.special_ids().padding;
  EXPECT_EQ(vocabulary.target.piece(padding), "<pad>");
  EXPECT_THAT(limits_of(vocabulary).suppressed, ElementsAre(ElementsAre(padding)))
      << "but not </s>, where its decoder starts";
  auto const refusal = [&](Languages const& languages) {
    return message_of<UsageError>([&] { frame_of(vocabulary, languages); });
  };
  expect_contains(refusal({"", "deu_Latn"}),
                  "--source-language is missing; the vocabulary's languages are: deu_Latn, eng_Latn");
  expect_contains(refusal({"eng_Latn", "en"}), "--target-language is \"en\"; the vocabulary's languages are: deu");
}

TEST_F(TextFormTest, OfMbartHasLanguagesAfterTheEndToken) {
  Vocabulary const vocabulary =
      fairseq("mbart", {"en_XX", "ro_RO"}, {{"tokenizer_class", "MBartTokenizer"}, {"src_lang", "en_XX"}});
  TextFrame const frame = frame_of(vocabulary, {"", "ro_RO"});
  EXPECT_THAT(pieces(vocabulary.source, frame.source), ElementsAre("en_XX"));
  EXPECT_THAT(pieces(vocabulary.target, frame.start), ElementsAre("ro_RO"));
  EXPECT_EQ(frame.start, start_of(vocabulary, frame.target));
  EXPECT_TRUE(vocabulary.special_ids().source.language_last);
  EXPECT_TRUE(vocabulary.special_ids().target.language_last);
  EXPECT_FALSE(vocabulary.source.special_ids().language_last) << "a side of its own has none";
}

TEST_F(TextFormTest, OfMbart50AndAnOlderNllbHaveDefaultsAndPlacesOfTheirOwn) {
  std::vector<std::string> const languages{"en_XX", "ro_RO"};
  auto const first =
      static_cast<std::int32_t>(SentencePieceModel::parse(exchange_file("sentencepiece_bpe.model")).pieces.size());
  Vocabulary const mbart =
      fairseq("mbart", languages, {{"tokenizer_class", "MBart50TokenizerFast"}}, {{"forced_bos_token_id", first + 2}});
  TextFrame const frame = frame_of(mbart, {"en_XX", ""});
  EXPECT_THAT(pieces(mbart.source, frame.source), ElementsAre("en_XX"));
  EXPECT_THAT(pieces(mbart.target, frame.start), ElementsAre("</s>", "ro_RO"));
  Vocabulary const older =
      fairseq("m2m_100", languages, {{"tokenizer_class", "NllbTokenizer"}, {"legacy_behaviour", true}});
  EXPECT_TRUE(older.special_ids().source.language_last);
  EXPECT_FALSE(older.special_ids().target.language_last);
  EXPECT_TRUE(older.joint());
}

/// As transformers 5 does; the decoder starts from that token without it.
TEST_F(TextFormTest, OfT5GemmaHasTheBeginTokenInFrontOfSourcesIfTheFilesSaySo) {
  std::string const model = exchange_file("sentencepiece_bytes.model");
  directory_.write("tokenizer.model", model);
  json::object const config{{"vocab_size", std::ssize(SentencePieceModel::parse(model).pieces)},
                            {"decoder_start_token_id", 1},
                            {"decoder", {{"bos_token_id", 1}}},
                            {"eos_token_id", 2}};
  auto const prefix = [&](json::object const& tokenizer) {
    directory_.write("tokenizer_config.json", json::serialize(tokenizer));
    TextFrame const frame = frame_of(read("t5gemma", config), {});
    EXPECT_THAT(frame.target, IsEmpty());
    return frame.source;
  };
  EXPECT_THAT(prefix({{"tokenizer_class", "GemmaTokenizer"}, {"add_bos_token", true}}), ElementsAre(1));
  EXPECT_THAT(prefix({{"tokenizer_class", "GemmaTokenizer"}, {"add_bos_token", false}}), IsEmpty());
  EXPECT_THAT(prefix({{"tokenizer_class", "GemmaTokenizer"}}), IsEmpty());
}

TEST_F(TextFormTest, OfM2m100NamesLanguagesWithoutTheirUnderscores) {
  directory_.write("vocab.json", exchange_file("sentencepiece_m2m100.json"));
  std::string const model = exchange_file("sentencepiece_bpe.model");
  auto const first =
      static_cast<std::int64_t>(json::parse(exchange_file("sentencepiece_m2m100.json")).as_object().size());
  directory_.write("sentencepiece.bpe.model", model);
  directory_.write("tokenizer_config.json",
                   json::serialize(json::object{{"added_tokens_decoder",
                                                 {{std::to_string(first + 1000), {{"content", "en"}}},
                                                  {std::to_string(first + 1001), {{"content", "de"}}}}}}));
  Vocabulary const vocabulary = read("m2m_100", {{"vocab_size", first + 2}, {"decoder_start_token_id", 2}});
  EXPECT_EQ(frame_of(vocabulary, {"en", "de"}).source, frame_of(vocabulary, {"__en__", "__de__"}).source);
  EXPECT_THAT(pieces(vocabulary.target, frame_of(vocabulary, {"en", "de"}).start), ElementsAre("</s>", "__de__"));
}

TEST_F(TextFormTest, OfOpusMtHasTheTargetsLanguageBeforeTheSourceAndNoPadding) {
  directory_.write("source.spm", exchange_file("sentencepiece_source.model"));
  directory_.write("target.spm", exchange_file("sentencepiece_target.model"));
  directory_.write("vocab.json", exchange_file("sentencepiece_marian.json"));
  auto const size =
      static_cast<std::int64_t>(json::parse(exchange_file("sentencepiece_marian.json")).as_object().size());
  json::object const config{{"vocab_size", size}, {"pad_token_id", size - 1}, {"decoder_start_token_id", size - 1}};
  Vocabulary const vocabulary = read("marian", config);
  TextFrame const frame = frame_of(vocabulary, {"", "deu"});
  EXPECT_THAT(pieces(vocabulary.source, frame.source), ElementsAre(">>deu<<"));
  EXPECT_THAT(frame.target, IsEmpty());
  EXPECT_THAT(pieces(vocabulary.target, frame.start), ElementsAre("<pad>"));
  EXPECT_THAT(vocabulary.target.form().suppressed, ElementsAre(ElementsAre(size - 1)));
  expect_usage_error(
      [&] {
        frame_of(vocabulary, {"eng", "deu"});
      },
      "--source-language is \"eng\", but the vocabulary has no tokens for the languages of this side");
  expect_usage_error([&] { frame_of(vocabulary, {}); },
                     "--target-language is missing; the vocabulary's languages are: >>deu<<");
}

TEST_F(TextFormTest, OfBartHasItsFirstTokenAndWhatGenerationForcesAndLeavesOut) {
  directory_.write("tokenizer.json", exchange_file("byte_level_bart.json"));
  directory_.write("tokenizer_config.json", R"({"eos_token": "</s>", "bos_token": "<s>"})");
  json::object const config{{"vocab_size", 3000}, {"decoder_start_token_id", 2}, {"forced_bos_token_id", 5}};
  Vocabulary plain = read("bart", config);
  EXPECT_THAT(frame_of(plain, {}).start, ElementsAre(2, 5)) << "config.json counts where there is no other file";
  directory_.write("generation_config.json", R"({"forced_bos_token_id": 0, "bad_words_ids": [[7], [8, 9]],
                                                 "suppress_tokens": [10], "begin_suppress_tokens": [11, 12]})");
  Vocabulary const vocabulary = read("bart", config);
  TextFrame const frame = frame_of(vocabulary, {});
  EXPECT_THAT(frame.source, ElementsAre(0));
  EXPECT_THAT(frame.target, ElementsAre(0));
  EXPECT_THAT(frame.start, ElementsAre(2, 0));
  EXPECT_THAT(vocabulary.target.form().suppressed, ElementsAre(ElementsAre(7), ElementsAre(8, 9), ElementsAre(10)));
  EXPECT_THAT(limits_of(vocabulary).suppressed_first, ElementsAre(11, 12));
  EXPECT_EQ(parse_text_form(to_json(vocabulary.source.form()), 3000), vocabulary.source.form());
  directory_.write("generation_config.json", R"({"bad_words_ids": [[3000]]})");
  expect_data_error([&] { read("bart", config); }, "outside the vocabulary's 0 to 2999");
}

std::string with_form(std::string const& bytes, TextForm const& form) {
  SentencePieceModel model = SentencePieceModel::parse(bytes);
  model.text_form = to_json(form);
  return model.serialize();
}

TEST_F(TextFormTest, HasTheEndTokensThatGenerationNames) {
  directory_.write("tokenizer.json", exchange_file("byte_level_llama3.json"));
  directory_.write("tokenizer_config.json", R"({"eos_token": "<|eot_id|>"})");
  auto const ends = [&](json::value const& of_config) {
    auto const read =
        read_vocabulary(family_named("llama"),
                        {{"vocab_size", 500}, {"bos_token_id", 480}, {"eos_token_id", of_config}}, directory_.path());
    Tokenizer const tokenizer = Tokenizer::from_model(read.target_model);
    EXPECT_EQ(tokenizer.special_ids().end, 482);
    return limits_of({tokenizer, tokenizer}).ends;
  };
  EXPECT_THAT(ends(482), IsEmpty());
  EXPECT_THAT(ends(json::array{481, 482}), ElementsAre(482, 481)) << "the vocabulary's end first";
  directory_.write("generation_config.json", R"({"eos_token_id": [481, 482, 480]})");
  EXPECT_THAT(ends(482), ElementsAre(482, 481, 480)) << "generation_config.json counts where it is there";
  directory_.write("generation_config.json", R"({"eos_token_id": 481})");
  EXPECT_THAT(ends(482), ElementsAre(481));
  directory_.write("generation_config.json", R"({"eos_token_id": 500})");
  expect_data_error([&] { ends(482); }, "outside the vocabulary's 0 to 499");
}

TEST(TextForm, OfAVocabularyThatWasMadeHereIsEmpty) {
  Tokenizer const tokenizer = Tokenizer::from_model(exchange_file("sentencepiece_bytes.model"));
  EXPECT_TRUE(tokenizer.form().empty());
  TextFrame const frame = frame_of({tokenizer, tokenizer}, {});
  EXPECT_THAT(frame.source, IsEmpty());
  EXPECT_THAT(frame.target, IsEmpty());
  EXPECT_THAT(frame.start, ElementsAre(tokenizer.special_ids().begin));
  EXPECT_THROW(frame_of({tokenizer, tokenizer}, {"", "de"}), UsageError);
}

TEST(TextForm, SpecialTokensThatStandForNoTextAreNotGenerated) {
  auto const suppressed = [](std::string const& model) {
    Tokenizer const tokenizer = Tokenizer::from_model(model);
    std::vector<std::string> names;
    for (auto const& sequence : limits_of({tokenizer, tokenizer}).suppressed) {
      EXPECT_EQ(sequence.size(), 1U);
      names.push_back(tokenizer.piece(sequence.front()));
    }
    return names;
  };
  std::string const model = exchange_file("sentencepiece_bytes.model");
  EXPECT_THAT(suppressed(model), ElementsAre("<s>"));
  // Texts of BART begin with <s>, and its decoder starts from </s>.
  TextForm form;
  form.target.prefix = {Tokenizer::from_model(model).special_ids().begin};
  EXPECT_THAT(suppressed(with_form(model, form)), IsEmpty());
  form.ends = form.target.prefix;
  form.target.prefix = {};
  EXPECT_THAT(suppressed(with_form(model, form)), IsEmpty()) << "a token that ends a target is generated";
}

TEST(TextForm, HasItsEndTokensAlsoInJson) {
  TextForm form;
  EXPECT_EQ(to_json(form).find("ends"), std::string::npos) << "the bytes of older vocabularies stay";
  form.ends = {3, 5};
  EXPECT_EQ(parse_text_form(to_json(form), 6), form);
  expect_data_error([&] { parse_text_form(to_json(form), 5); }, "outside");
}

TEST(TextForm, ThatIsNoneIsRefused) {
  SentencePieceModel model = SentencePieceModel::parse(exchange_file("sentencepiece_bytes.model"));
  TextForm form;
  form.languages = {5};
  std::string const good = to_json(form);
  for (std::string const& bad :
       {std::string("{"), std::string("{}"), std::string("[]"), std::string(good).replace(good.find('5'), 1, "1000000"),
        std::string(good).replace(good.find("none"), 4, "left")}) {
    model.text_form = bad;
    expect_data_error([&] { Tokenizer::from_model(model.serialize()); }, "form of texts cannot be used");
  }
  model.text_form = good;
  EXPECT_EQ(Tokenizer::from_model(model.serialize()).form(), form);
}

}  // namespace
}  // namespace heddle
