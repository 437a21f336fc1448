#include <boost/json.hpp>
#include <heddle/io/tokenizers/tokenizer.hpp>
#include <heddle/io/vocabularies/tokenizer_json.hpp>
#include <heddle/io/vocabularies/vocabulary_files.hpp>

#include "exchange_file.hpp"

// The golden files were written by Hugging Face's tokenizers: see byte_level.py beside them.

namespace heddle {
namespace {

namespace json = boost::json;

constexpr SpecialIds bart_ids{.begin = 2, .end = 2, .unknown = 3, .padding = 1, .mask = 4};
constexpr SpecialIds llama3_ids{.begin = 480, .end = 482};
constexpr SpecialIds qwen2_ids{.begin = 480, .end = 482};

std::string byte_level_file(std::string const& name) {
  return exchange_file("byte_level_" + name);
}

/// The text with its first `from` replaced, which it must have.
std::string replaced(std::string text, std::string const& from, std::string const& to) {
  std::size_t const at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

Tokenizer byte_level_tokenizer(std::string const& name, SpecialIds const& ids) {
  return Tokenizer::from_model(byte_level_vocabulary(byte_level_file(name + ".json"), ids, 500));
}

TEST(ByteLevelBpe, HasTheIdsAndTextsOfTheOtherSystem) {
  expect_golden_ids(byte_level_tokenizer("bart", bart_ids), "byte_level", "bart", "lines.txt");
  expect_golden_ids(byte_level_tokenizer("llama3", llama3_ids), "byte_level", "llama3", "lines.txt");
  expect_golden_ids(byte_level_tokenizer("qwen2", qwen2_ids), "byte_level", "qwen2", "qwen2.txt");
}

TEST(ByteLevelBpe, NeitherReadsNorWritesSpecialPieces) {
  Tokenizer const tokenizer = byte_level_tokenizer("bart", bart_ids);
  EXPECT_EQ(tokenizer.special_ids(), bart_ids);
  EXPECT_EQ(tokenizer.size(), 500);
  EXPECT_EQ(tokenizer.piece(4), "<mask>");
  EXPECT_EQ(tokenizer.piece(499), "<madeupword499>");
  auto ids = tokenizer.encode("</s> man");
  EXPECT_THAT(ids, Each(AllOf(::testing::Ge(5), ::testing::Lt(480))));
  EXPECT_THAT(tokenizer.piece(ids.back()), StartsWith("Ġ"));
  ids.insert(ids.begin(), {0, 1, 499});
  ids.push_back(2);
  EXPECT_EQ(tokenizer.decode(ids), "</s> man");
  EXPECT_THROW(tokenizer.decode(std::vector{500}), Error);
  EXPECT_THROW(tokenizer.piece(-1), Error);
}

TEST(ByteLevelBpe, PutsTheReplacementCharacterInPlaceOfBrokenTexts) {
  Tokenizer const tokenizer = byte_level_tokenizer("bart", bart_ids);
  auto const ids = tokenizer.encode("\U00020000");
  ASSERT_EQ(ids.size(), 4U);
  EXPECT_EQ(tokenizer.decode(std::vector{ids[0], ids[1]}), "\ufffd");
  EXPECT_EQ(tokenizer.encode("a\xff\xe2\x82z"), tokenizer.encode("a\ufffd\ufffdz"));
}

TEST(ByteLevelBpe, MayPutASpaceInFront) {
  Tokenizer const plain = byte_level_tokenizer("bart", bart_ids);
  std::string const with_space =
      replaced(byte_level_file("bart.json"), R"("add_prefix_space":false)", R"("add_prefix_space":true)");
  Tokenizer const tokenizer = Tokenizer::from_model(byte_level_vocabulary(with_space, bart_ids, 500));
  ASSERT_NE(plain.encode("man"), plain.encode(" man"));
  EXPECT_EQ(tokenizer.encode("man"), plain.encode(" man"));
  EXPECT_EQ(tokenizer.encode(" man"), plain.encode(" man"));
  EXPECT_THAT(tokenizer.encode(""), IsEmpty());
}

TEST(ByteLevelBpe, CutsWordsInSteps) {
  Tokenizer const plain = byte_level_tokenizer("llama3", llama3_ids);
  auto const with_step = [](std::string const& step) {
    std::string const file =
        replaced(byte_level_file("llama3.json"), R"({"type":"Split")", step + R"(,{"type":"Split")");
    return Tokenizer::from_model(byte_level_vocabulary(file, llama3_ids, 500));
  };
  auto const together = [&](std::initializer_list<char const*> words) {
    std::vector<std::int32_t> ids;
    for (char const* const word : words) {
      auto const more = plain.encode(word);
      ids.insert(ids.end(), more.begin(), more.end());
    }
    return ids;
  };
  char const* const literal = R"({"type":"Split","pattern":{"String":"m.n"},"behavior":"Isolated","invert":false})";
  EXPECT_EQ(with_step(literal).encode("a mann m.nan"), together({"a mann ", "m.n", "an"}));
  char const* const regex = R"({"type":"Split","pattern":{"Regex":"m.n"},"behavior":"Isolated","invert":false})";
  EXPECT_EQ(with_step(regex).encode("a mann"), together({"a ", "man", "n"}));
  ASSERT_NE(together({"a mann ", "m.n", "an"}), plain.encode("a mann m.nan"));
  ASSERT_NE(together({"a ", "man", "n"}), plain.encode("a mann"));
}

TEST(ByteLevelBpe, CutsNumbersFromOtherWords) {
  std::string file = byte_level_file("bart.json");
  file = replaced(file, R"("vocab":{)", R"("vocab":{"Ġ1":490,"12":491,)");
  file = replaced(file, R"("merges":[)", R"("merges":[["Ġ","1"],["1","2"],)");
  std::string const key = R"("pre_tokenizer":)";
  std::size_t const first = file.find(key) + key.size();
  std::string const words = file.substr(first, file.find('}', first) + 1 - first);
  auto const pieces = [&](std::string const& steps) {
    auto const tokenizer = Tokenizer::from_model(byte_level_vocabulary(replaced(file, words, steps), bart_ids, 500));
    std::vector<std::string> found;
    for (std::int32_t const id : tokenizer.encode("! 12")) {
      found.push_back(tokenizer.piece(id));
    }
    return found;
  };
  std::string const sequence = R"({"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":)";
  EXPECT_THAT(pieces(words), ElementsAre("!", "Ġ1", "2"));
  EXPECT_THAT(pieces(sequence + "false}," + words + "]}"), ElementsAre("!", "Ġ", "12"));
  EXPECT_THAT(pieces(sequence + "true}," + words + "]}"), ElementsAre("!", "Ġ", "1", "2"));
}

TEST(ByteLevelBpe, ReadsNoTextAsANamedPiece) {
  std::string const file = replaced(byte_level_file("qwen2.json"), R"("normalized":false,"special":true)",
                                    R"("normalized":false,"special":false)");
  auto const read = [&](SpecialIds const& ids) {
    auto const tokenizer = Tokenizer::from_model(byte_level_vocabulary(file, ids, 500));
    return tokenizer.encode(tokenizer.piece(480)).size();
  };
  EXPECT_EQ(read({.begin = 481, .end = 482}), 1U);
  EXPECT_GT(read({.begin = 480, .end = 482}), 1U);
}

TEST(ByteLevelBpe, RemembersSomeWordsOfManyWithoutAnEffect) {
  Tokenizer const tokenizer = byte_level_tokenizer("bart", bart_ids);
  auto const before = tokenizer.encode("a man in a blue shirt");
  for (int number = 0; number < 70'000; ++number) {  // more than are remembered
    tokenizer.encode(std::to_string(number));
  }
  EXPECT_EQ(tokenizer.encode("a man in a blue shirt"), before);
}

TEST(ByteLevelBpe, RefusesTokenizersThatDoMore) {
  struct Change {
    std::string from;
    std::string to;
    std::string message;
  };
  std::string const file = byte_level_file("qwen2.json");
  auto const message = [&](std::string const& text, SpecialIds const& ids = qwen2_ids, std::int64_t rows = 500) {
    return message_of<DataError>([&] { Tokenizer::from_model(byte_level_vocabulary(text, ids, rows)); });
  };
  for (auto const& [from, to, expected] : std::vector<Change>{
           {R"("type":"BPE")", R"("type":"Unigram")", "pre_tokenizer"},
           {R"("byte_fallback":false)", R"("byte_fallback":true)", "model.byte_fallback"},
           {R"("dropout":null)", R"("dropout":0.1)", "model.dropout"},
           {R"("end_of_word_suffix":null)", R"("end_of_word_suffix":"</w>")", "model.end_of_word_suffix"},
           {R"("type":"NFC")", R"("type":"NFE")", "normalizer"},
           {R"("behavior":"Isolated")", R"("behavior":"Torn")", "pre_tokenizer"},
           {R"({"type":"ByteLevel",)", R"({"type":"Whitespace",)", "decoder"},
           {R"("pre_tokenizer":{)", R"("pre_tokenizer":null,"none":{)", "decoder"},
           {R"("use_regex":false})", R"("use_regex":false},{"type":"Digits"})", "pre_tokenizer"},
           {R"("decoder":{"type":"ByteLevel")", R"("decoder":{"type":"BPEDecoder")", "decoder"},
           {R"(\\p{L}+)", R"(\\h+)", "the escape \\h"},
           {R"(\\p{L}+)", R"(\\p{L}+()", "cannot be used"},
           {R"("content":"<tool_call>")", R"("content":")" + std::string(1025, '!') + '"', "has 1025 bytes"},
           {R"("!":0,)", "", "has no piece \"!\""},
           {R"("\"":1,)", R"("\"":0,)", "two pieces have the id 0"},
           {R"("\"":1,)", R"("\"":-1,)", "has the id -1"},
           {R"("\"":1,)", R"("\"":9999999,)", "has the id 9999999"},
           {R"("\"":1,)", R"("\"":1.5,)", "not a tokenizer.json"},
           {R"("merges":[)", R"("merges":[["!","zzz"],)", "a merge has \"!zzz\""},
           {R"("merges":[)", R"("merges":[["!"],)", "not a tokenizer.json"},
           {R"("merges":[)", R"("merges":["日 本",)", "not bytes"},
           {R"("model":{)", R"("vocabulary":{)", "not a tokenizer.json"},
       }) {
    EXPECT_THAT(message(replaced(file, from, to)), HasSubstr(expected)) << from << " -> " << to;
  }
  expect_contains(message(file, qwen2_ids, 486), "a table of 486 rows");
  expect_contains(message(file, qwen2_ids, std::int64_t{1} << 40), "rows");
  expect_contains(message(file, {.begin = 480}), "special piece \"end\"");
  expect_contains(message(file, {.begin = 480, .end = 500}), "special piece \"end\"");
  expect_contains(message(file, {.begin = 480, .end = 300}), "are merged to a special piece");
  expect_contains(message(file.substr(0, 2000)), "not JSON");
  expect_contains(message("[]"), "not a JSON object");
  expect_data_error([&] { Tokenizer::from_model(file); }, "not a tokenizer.json");
}

TEST(ByteLevelBpe, LongLinesAreWithinTheLimitsOfAMatch) {
  Tokenizer const tokenizer = byte_level_tokenizer("bart", bart_ids);
  std::string const spaces = "a" + std::string(500'000, ' ') + "b";
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(spaces)), spaces);
  std::string words;
  while (words.size() < 4'000'000) {
    words += "a man, ";
  }
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(words)), words);
}

TEST(ByteLevelBpe, AHostileFileTakesNoMoreThanItsShare) {
  std::string many_values = R"({"model":[0)";
  for (int value = 0; value < 12'000'000; ++value) {
    many_values += ",0";
  }
  many_values += "]}";
  expect_data_error([&] { Tokenizer::from_model(many_values); }, "more than 512 MiB");
  std::string const slow = replaced(byte_level_file("llama3.json"), R"("Regex":")", R"("Regex":"(?:a|aa)+(?:b|bb)+c|)");
  Tokenizer const tokenizer = Tokenizer::from_model(byte_level_vocabulary(slow, llama3_ids, 500));
  EXPECT_FALSE(tokenizer.encode("aaabc").empty());
  expect_data_error([&] { tokenizer.encode(std::string(200, 'a') + std::string(200, 'b')); },
                    "cannot be split into words");
  // Each match is short of its own limit.
  std::string lookaheads;
  for (int number = 0; number < 20; ++number) {
    lookaheads += "(?=(a+))";
  }
  auto const with_pattern = [](std::string const& pattern) {
    return byte_level_vocabulary(
        replaced(byte_level_file("llama3.json"), R"("Regex":")", R"("Regex":")" + pattern + "|"), llama3_ids, 500);
  };
  Tokenizer const patient = Tokenizer::from_model(with_pattern(lookaheads + "a"));
  expect_data_error([&] { patient.encode(std::string(3000, 'a')); }, "takes too long");
  expect_data_error([&] { Tokenizer::from_model(with_pattern(std::string(10'000, 'a'))); }, "10000 at most are read");
  std::string steps;
  for (int number = 0; number < 20; ++number) {
    steps += R"({"type":"Digits"},)";
  }
  std::string const many = replaced(byte_level_file("llama3.json"), R"({"type":"Split")", steps + R"({"type":"Split")");
  expect_data_error([&] { Tokenizer::from_model(byte_level_vocabulary(many, llama3_ids, 500)); },
                    "the text; 16 at most are read");
}

class ByteLevelFiles : public ::testing::Test {
 protected:
  void write_config(json::object config, std::string const& family) {
    config["model_type"] = family;
    config_ = config;
    directory_.write("config.json", json::serialize(config));
  }
  /// The files as transformers had them before tokenizer.json.
  void write_vocabulary_and_merges(std::string const& name) {
    json::value const tokenizer = json::parse(byte_level_file(name + ".json"));
    std::string merges = "#version: 0.2\n";
    for (json::value const& merge : tokenizer.at("model").at("merges").as_array()) {
      merges += json::value_to<std::string>(merge.at(0)) + " " + json::value_to<std::string>(merge.at(1)) + "\n";
    }
    json::object added;
    for (json::value const& token : tokenizer.at("added_tokens").as_array()) {
      added[std::to_string(token.at("id").as_int64())] = token;
    }
    directory_.write("vocab.json", json::serialize(tokenizer.at("model").at("vocab")));
    directory_.write("merges.txt", merges);
    tokenizer_config_["added_tokens_decoder"] = added;
  }
  ForeignVocabulary read() {
    directory_.write("tokenizer_config.json", json::serialize(tokenizer_config_));
    return read_vocabulary(family_of(config_), config_, directory_.path());
  }
  SpecialIds ids() { return Tokenizer::from_model(read().source_model).special_ids(); }

  TemporaryDirectory directory_;
  json::object config_;
  json::object tokenizer_config_;
};

TEST_F(ByteLevelFiles, AreReadAndWrittenBack) {
  directory_.write("tokenizer.json", byte_level_file("bart.json"));
  tokenizer_config_ = {{"unk_token", "<unk>"}, {"mask_token", {{"content", "<mask>"}}}};
  write_config({{"vocab_size", 500},
                {"decoder_start_token_id", 2},
                {"bos_token_id", 0},
                {"eos_token_id", 2},
                {"pad_token_id", 1}},
               "bart");
  ForeignVocabulary const read_files = read();
  EXPECT_EQ(read_files.source_model, read_files.target_model);
  Tokenizer const tokenizer = Tokenizer::from_model(read_files.source_model);
  EXPECT_EQ(tokenizer.special_ids(), bart_ids);
  EXPECT_EQ(tokenizer.size(), 500);
  expect_golden_ids(tokenizer, "byte_level", "bart", "lines.txt");

  json::object config{{"is_encoder_decoder", true}};
  auto const same = vocabulary_files(family_of(config_), {tokenizer, tokenizer}, read_files.files, config);
  EXPECT_EQ(same.at("tokenizer.json"), byte_level_file("bart.json"));
  auto const made = vocabulary_files(family_of(config_), {tokenizer, tokenizer}, {}, config);
  EXPECT_EQ(config.at("decoder_start_token_id"), 2);
  EXPECT_EQ(config.at("vocab_size"), 500);
  json::value const written = json::parse(made.at("tokenizer.json"));
  EXPECT_EQ(json::serialize(written.at("post_processor").at("single").at(1)),
            R"({"SpecialToken":{"id":"</s>","type_id":0}})");
  EXPECT_FALSE(written.as_object().contains("heddle"));
  expect_golden_ids(Tokenizer::from_model(byte_level_vocabulary(made.at("tokenizer.json"), bart_ids, 500)),
                    "byte_level", "bart", "lines.txt");
}

TEST_F(ByteLevelFiles, OfAWrongSizeAreRefused) {
  write_config({{"vocab_size", 500}, {"eos_token_id", 2}}, "bart");
  expect_data_error([&] { read(); }, "vocab.json with merges.txt");
  directory_.write("tokenizer.json", std::string(std::size_t{65} << 20U, ' '));
  expect_data_error([&] { read(); }, "more than 64 MiB");
}

TEST_F(ByteLevelFiles, MayBeAVocabularyAndMerges) {
  write_config({{"vocab_size", 500}, {"eos_token_id", 482}, {"bos_token_id", 480}}, "llama");
  write_vocabulary_and_merges("qwen2");
  tokenizer_config_["tokenizer_class"] = "Qwen2Tokenizer";
  Tokenizer const qwen2 = Tokenizer::from_model(read().source_model);
  EXPECT_EQ(qwen2.special_ids(), qwen2_ids);
  expect_golden_ids(qwen2, "byte_level", "qwen2", "qwen2.txt");

  write_config({{"vocab_size", 500}, {"eos_token_id", 2}}, "bart");
  write_vocabulary_and_merges("bart");
  tokenizer_config_["tokenizer_class"] = "BartTokenizer";
  expect_golden_ids(Tokenizer::from_model(read().source_model), "byte_level", "bart", "lines.txt");
  tokenizer_config_["tokenizer_class"] = "CLIPTokenizer";
  expect_data_error([&] { read(); }, "CLIPTokenizer");
}

TEST_F(ByteLevelFiles, NameTheSpecialPieces) {
  directory_.write("tokenizer.json", byte_level_file("llama3.json"));
  auto const with = [&](json::object config) {
    config["vocab_size"] = 500;
    write_config(std::move(config), "llama");
  };
  with({{"bos_token_id", 480}, {"eos_token_id", {481, 482}}});  // each of them ends a text
  EXPECT_EQ(ids(), (SpecialIds{.begin = 480, .end = 481}));
  tokenizer_config_["eos_token"] = "<|eot_id|>";
  EXPECT_EQ(ids(), llama3_ids);
  with({{"bos_token_id", nullptr}, {"pad_token_id", -1}});
  EXPECT_EQ(ids(), (SpecialIds{.begin = 482, .end = 482}));
  tokenizer_config_["bos_token"] = "<|begin_of_text|>";
  tokenizer_config_["unk_token"] = "<|end_of_text|>";
  EXPECT_EQ(ids(), (SpecialIds{.begin = 480, .end = 482, .unknown = 481}));
  tokenizer_config_["unk_token"] = "<|eot_id|>";  // as GPT-2's: no text has it
  EXPECT_EQ(ids(), llama3_ids);
  tokenizer_config_.clear();
  expect_data_error([&] { ids(); }, "special piece \"begin\"");
}

}  // namespace
}  // namespace heddle
