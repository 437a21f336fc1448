#include "inference/forced_decoding.hpp"

#include <sys/stat.h>

#include <boost/algorithm/string/replace.hpp>
#include <boost/json.hpp>
#include <heddle/core/training/micro_batch_source.hpp>
#include <heddle/io/text/text.hpp>
#include <heddle/io/vocabularies/tokenizer_json.hpp>

#include "exchange/importing.hpp"
#include "inference/alignment.hpp"
#include "inference/probe.hpp"
#include "inference/token_choices.hpp"
#include "inference/translation.hpp"
#include "kernel_test_support.hpp"
#include "learnt_tokenizer.hpp"

namespace heddle {
namespace {

using Tokens = std::vector<std::int32_t>;

/// A small imported model, without languages and with them.
class ForcedDecodingTest : public KernelTest, public testing::WithParamInterface<char const*> {
 protected:
  ForcedDecodingTest() {
    import_model(execution_, fs::path(HEDDLE_TEST_DATA) / "exchange" / GetParam(), directory_ / "run");
    options_.checkpoint = (directory_ / "run").string();
    options_.execution = &execution_;
  }
  std::unique_ptr<TrainedModel> open(TrainedModelOptions const& options) const {
    auto model = TrainedModel::open(options);
    model->choose_languages(has_languages() ? Languages{"eng_Latn", "deu_Latn"} : Languages());
    return model;
  }
  bool has_languages() const { return std::string_view(GetParam()) == "nllb"; }

  /// The weights of each head in the last cross-attention but one, of a model whose attention is the reference's.
  SequenceAttention observed(Sample const& pair) const {
    std::shared_ptr<AttentionProbe> probe;
    TrainedModelOptions options = options_;
    options.add_kernels = [&](KernelRegistries& kernels, KernelChoices& choices) {
      probe = install_probe<AttentionProbe, Attention>(kernels, choices);
    };
    auto const model = open(options);
    probe->start();
    model->loss(RepeatedPack(make_pack(std::span(&pair, 1), model->vocabulary().special_ids())));
    auto const calls = probe->stop();
    return calls.at(calls.size() - (model->config().model.decoder.layers > 1 ? 3 : 1)).sequences.front();
  }

  TemporaryDirectory directory_;
  TrainedModelOptions options_;
  std::vector<GivenTarget> const given_{{{5, 6, 7, 4}, {8, 5}}, {{9}, {4, 7, 5, 6}}, {{6, 6}, {}}};
};

TEST_P(ForcedDecodingTest, HasTheLossesAndTheAttentionOfTheModel) {
  auto const plain_model = open(options_);
  std::vector<ForcedTarget> const plain = ForcedDecoding().decode(*plain_model, given_);
  TextFrame const& frame = plain_model->frame();
  for (std::optional<std::int64_t> const head : {std::optional<std::int64_t>(), std::optional<std::int64_t>(2)}) {
    TrainedModelOptions options = options_;
    ForcedDecoding const forcing({.head = head}, options);
    auto const model = open(options);
    auto const found = forcing.decode(*model, given_);
    ASSERT_EQ(found.size(), given_.size());
    for (std::size_t index = 0; index < found.size(); ++index) {
      auto const& [source, target] = given_[index];
      EXPECT_EQ(found[index].losses, plain[index].losses);
      ASSERT_EQ(found[index].losses.size(), target.size() + 1);
      Sample pair{0, frame.source, frame.target};
      pair.source.tokens.insert(pair.source.tokens.end(), source.begin(), source.end());
      pair.target.tokens.insert(pair.target.tokens.end(), target.begin(), target.end());
      SequenceAttention const all = observed(pair);
      std::int64_t const heads = std::ssize(all.weights) / (all.queries * all.keys);
      ASSERT_GT(heads, 1);
      std::vector<double> expected;
      for (std::size_t row = frame.target.size(); row < frame.target.size() + target.size(); ++row) {
        for (std::size_t column = frame.source.size(); column <= frame.source.size() + source.size(); ++column) {
          double sum = 0;
          for (std::int64_t each = head ? *head - 1 : 0; each < head.value_or(heads); ++each) {
            sum += all.weights[static_cast<std::size_t>((each * all.queries) * all.keys) +
                               row * static_cast<std::size_t>(all.keys) + column];
          }
          expected.push_back(sum / static_cast<double>(head ? 1 : heads));
        }
      }
      EXPECT_THAT(found[index].attention, Pointwise(DoubleNear(1e-5), expected));
    }
  }
}

TEST_P(ForcedDecodingTest, GivesGeneratedTokensTheirLogProbability) {
  auto const model = open(options_);
  Tokens source = model->frame().source;
  source.insert(source.end(), given_[0].source.begin(), given_[0].source.end());
  Tokens const prefix{8, 5};
  Tokens start = model->frame().start;
  if (start.empty()) {
    start.push_back(model->vocabulary().special_ids().target.begin);
  }
  start.insert(start.end(), prefix.begin(), prefix.end());
  auto const found = model->generate(std::span(&source, 1), {.max_length = 6}, std::span(&start, 1)).front().front();
  Tokens all = prefix;
  all.insert(all.end(), found.tokens.begin(), found.tokens.end());
  GivenTarget const given{given_[0].source, all};
  auto const losses = ForcedDecoding().decode(*model, std::span(&given, 1)).front().losses;
  ASSERT_EQ(losses.size(), all.size() + 1);
  EXPECT_NEAR(-std::accumulate(losses.begin() + std::ssize(prefix), losses.end(), 0.0), found.log_probability, 1e-4)
      << "a prefix is not counted";
}

TEST_P(ForcedDecodingTest, RefusesLayersAndHeadsThatTheModelDoesNotHave) {
  auto const refused = [&](AlignedAttention const& read) {
    return [&, read] {
      TrainedModelOptions options = options_;
      ForcedDecoding const forcing(read, options);
      forcing.decode(*open(options), given_);
    };
  };
  expect_usage_error(refused({.layer = 9}), "layers with cross-attention, from 1");
  expect_usage_error(refused({.layer = 0}), "alignments of layer 0");
  expect_usage_error(refused({.head = 0}), "alignments of head 0");
  expect_usage_error(refused({.head = 64}), "heads, from 1");
}

TEST_P(ForcedDecodingTest, PrefixesAreInTheTranslationAndCutWhereTheyAreTooLong) {
  auto const model = open(options_);
  Tokenizer const& target = model->vocabulary().target;
  std::string const prefix = target.decode(Tokens{8, 5});
  EncodedLine const line = encode_source(*model, prefix, prefix);
  ASSERT_FALSE(line.prefix.empty());
  EXPECT_EQ(line.prefix, target.encode(prefix));
  EXPECT_TRUE(std::equal(line.prefix.rbegin(), line.prefix.rend(), line.start.rbegin()));
  EXPECT_GT(line.start.size(), line.prefix.size());
  Translation const translation =
      translations_of(*model, {{.text = prefix, .prefix = prefix}, line, {{{7, 4}, -2, -1}}}).front();
  Tokens expected = line.prefix;
  expected.insert(expected.end(), {7, 4});
  EXPECT_EQ(translation.tokens, expected);
  EXPECT_EQ(translation.text, target.decode(expected));
  std::string many;
  for (std::int64_t count = 0; count <= model->longest_source(); ++count) {
    many += prefix + " ";
  }
  EncodedLine const cut = encode_source(*model, prefix, many);
  EXPECT_EQ(std::ssize(cut.start), model->longest_source());
  EXPECT_GT(cut.prefix_cut_from, cut.prefix.size());
  EXPECT_EQ(translations_of(*model, {{.text = prefix, .prefix = many}, cut, {{{}, -2, -1}}}).front().text,
            target.decode(cut.prefix));
  EXPECT_EQ(model->generate(std::span(&*cut.tokens, 1), {}, std::span(&cut.start, 1)).front().size(), 1U);
}

TEST_P(ForcedDecodingTest, APrefixIsWrittenAsItWasGivenAndItsWordsAreCountedThere) {
  auto const model = open(options_);
  Tokenizer const& target = model->vocabulary().target;
  std::string const word = "house";
  Tokens const next = target.encode(word);
  for (std::string const prefix : {"a \uff48ouse, \u2116 \u6f22\u5b57", "a house ", " a  house\u00b4s"}) {
    EncodedLine const line = encode_source(*model, word, prefix);
    Translation const translation =
        translations_of(*model, {{.text = word, .prefix = prefix}, line, {{next, -2, -1}}}).front();
    bool const spaced = prefix.ends_with(' ');
    EXPECT_EQ(translation.text, prefix + (spaced ? "" : " ") + word);
    auto const words = words_of(target, translation);
    ASSERT_EQ(words.size(), line.prefix.size() + next.size());
    auto const count = static_cast<std::int64_t>(split_words(translation.text).size());
    EXPECT_EQ(words.front(), 0);
    EXPECT_EQ(words[line.prefix.size() - 1], count - 2);
    EXPECT_EQ(words[line.prefix.size()], count - 1);
    EXPECT_EQ(words.back(), count - 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ForcedDecodingTest, testing::Values("marian", "nllb"));

TEST(Alignment, TakesTheStrongestTokenButTheEnd) {
  std::vector<double> const attention{0.1, 0.3, 0.6, 0.4, 0.4, 0.2, 0.5, 0.1, 0.4};
  Alignment const alignment = hard_alignment(attention, 2);
  EXPECT_EQ(to_text(alignment), "1-0 0-1 0-2");
  EXPECT_EQ(to_text(hard_alignment({}, 2)), "");
  EXPECT_EQ(to_text(hard_alignment(std::vector<double>{1, 1}, 0)), "") << "a source without tokens";
  std::vector<std::int64_t> const source_words{0, 1};
  std::vector<std::int64_t> const target_words{0, 1, 1};
  EXPECT_EQ(to_text(between_words(alignment, source_words, target_words)), "1-0 0-1");
}

TEST(Alignment, CoverageIsTheLogOfTheAttentionThatEachSourceTokenGot) {
  // Two target tokens over three source tokens and the end: the tokens get 1.2 (counts as 1), 0.5 and 0.1.
  std::vector<double> const attention{0.7, 0.1, 0.1, 0.1, 0.5, 0.4, 0.0, 0.1};
  EXPECT_DOUBLE_EQ(coverage(attention, 3), std::log(0.5) + std::log(0.1));
  EXPECT_DOUBLE_EQ(coverage(std::vector<double>{0, 1}, 1), std::log(1e-10)) << "finite where nothing attends";
  EXPECT_EQ(coverage({}, 0), 0);
}

/// Expects that the tokens of each word of a line are written as those of the word alone, without unknown ones: white
/// space may be one of these.
void expect_words(Tokenizer const& tokenizer, std::string const& line) {
  auto const written = [&](Tokens tokens) {
    std::erase(tokens, tokenizer.special_ids().unknown);
    std::string text = tokenizer.decode(tokens);
    text.erase(0, text.starts_with("##") ? 2 : 0);  // a control character is white space here, and nothing to WordPiece
    return fmt::format("{}", fmt::join(split_words(text), ""));
  };
  Tokens const tokens = tokenizer.encode(line);
  auto const numbers = words_of(tokenizer, line, tokens.size());
  auto const words = split_words(line);
  ASSERT_EQ(numbers.size(), tokens.size()) << line;
  std::vector<Tokens> of_word(std::max<std::size_t>(words.size(), 1));
  for (std::size_t at = 0; at < tokens.size(); ++at) {
    of_word.at(static_cast<std::size_t>(numbers[at])).push_back(tokens[at]);
  }
  for (std::size_t word = 0; word < words.size(); ++word) {
    EXPECT_EQ(written(of_word[word]), written(tokenizer.encode(words[word]))) << line << ", word " << word;
  }
}

std::string exchange_file(std::string const& name) {
  return read_whole(fs::path(HEDDLE_TEST_DATA) / "exchange" / name);
}

/// `bytes`: of a SentencePiece model or a tokenizer.json.
Tokenizer tokenizer_from(std::string const& bytes) {
  boost::json::object const config{{"vocab_size", 700}, {"decoder_start_token_id", 2}, {"eos_token_id", 2}};
  return Tokenizer::from_model(bytes.starts_with('{') ? read_json_vocabulary({{"tokenizer.json", bytes}}, config)
                                                      : bytes);
}

Tokenizer tokenizer_of(std::string const& name) {
  return tokenizer_from(exchange_file(name));
}

TEST(Alignment, TokensBelongToTheWordsOfTheGivenLine) {
  for (auto const& [name, lines] : {std::pair("sentencepiece_bpe.model", "sentencepiece_lines.txt"),
                                    {"sentencepiece_bytes.model", "sentencepiece_lines.txt"},
                                    {"byte_level_bart.json", "byte_level_lines.txt"},
                                    {"byte_level_llama3.json", "byte_level_lines.txt"},
                                    {"byte_level_qwen2.json", "byte_level_lines.txt"},
                                    {"word_piece_cased.json", "word_piece_lines.txt"},
                                    {"word_piece_uncased.json", "word_piece_lines.txt"}}) {
    Tokenizer const tokenizer = tokenizer_of(name);
    SCOPED_TRACE(name);
    for (std::string const& line : lines_of(exchange_file(lines))) {
      expect_words(tokenizer, line);
    }
  }
}

// NFKC makes U+00B4 and U+00A8 a space and an accent, U+200B and U+3000 a space, and U+FEFF vanishes.
TEST(Alignment, NormalizationMakesNoWords) {
  TokenizerTraining training;
  training.vocabulary_size = 40;
  Tokenizer const tokenizer = learn_tokenizer("it is one house and it has a dog\na house has one dog\n", training);
  EXPECT_GT(split_words(tokenizer.decode(tokenizer.encode("a\u200bhouse one"))).size(), 2U) << "normalized";
  for (std::string const line :
       {"it\u00b4s one", "\u00a8it one", "a\u200bhouse one", "a \ufeff house", " a  house ", "a\u3000house", "a"}) {
    expect_words(tokenizer, line);
    EXPECT_EQ(words_of(tokenizer, line, tokenizer.encode(line).size()).back() + 1, std::ssize(split_words(line)))
        << line;
  }
  EXPECT_TRUE(words_of(tokenizer, " ", 0).empty());
}

// A line may have 1 MiB, of which the model takes the first tokens.
TEST(Alignment, WhatIsEncodedForWordsGrowsWithTheAlignedTokens) {
  std::string line;
  for (std::size_t word = 0; word < (std::size_t{1} << 20) / 6; ++word) {
    line += "house ";
  }
  std::size_t encoded = 0;
  auto const count = [&](std::string_view part) {
    encoded += part.size();
    return 2 * ((part.size() + 1) / 6);
  };
  std::size_t const all = 2 * (line.size() / 6);
  for (std::size_t const tokens : {std::size_t{1000}, all}) {
    encoded = 0;
    auto const words = words_of(count, line, tokens);
    ASSERT_EQ(words.size(), tokens);
    for (std::size_t token = 0; token < tokens; ++token) {
      ASSERT_EQ(words[token], static_cast<std::int64_t>(token / 2));
    }
    EXPECT_LT(encoded, 16 * 3 * tokens);
  }
}

TEST(Alignment, WordsOfTheFirstTokensAreThoseOfTheWholeLine) {
  Tokenizer const tokenizer = tokenizer_of("sentencepiece_bpe.model");
  std::string const line = "\u200b a house, and another one; it's  twenty-three ";
  auto const all = words_of(tokenizer, line, tokenizer.encode(line).size());
  for (std::size_t tokens = 0; tokens <= all.size(); ++tokens) {
    EXPECT_TRUE(std::ranges::equal(words_of(tokenizer, line, tokens), std::span(all).first(tokens))) << tokens;
  }
}

TEST(Alignment, WordsOfATranslationAreThoseOfItsText) {
  Tokenizer const tokenizer = tokenizer_of("sentencepiece_bpe.model");
  for (std::string const text : {"a house, and another one.", "x", "it's  twenty-three"}) {
    Tokens const tokens = tokenizer.encode(text);
    EXPECT_EQ(words_of(tokenizer, Translation{.text = tokenizer.decode(tokens), .tokens = tokens}),
              words_of(tokenizer, text, tokens.size()));
  }
  // An unknown token is written as a word of its own.
  Tokens const tokens{tokenizer.encode("a").at(0), tokenizer.special_ids().unknown, tokenizer.encode("a").at(0)};
  EXPECT_THAT(words_of(tokenizer, Translation{.text = tokenizer.decode(tokens), .tokens = tokens}),
              ElementsAre(0, 1, 2));
}

TEST(Pieces, AreReadAsTheyWereWritten) {
  fs::path const model = fs::path(HEDDLE_TEST_DATA) / "exchange" / "sentencepiece_bpe.model";
  Tokenizer const tokenizer = Tokenizer::from_model(read_whole(model));
  auto const ids = piece_ids(tokenizer);
  Tokens all(static_cast<std::size_t>(tokenizer.size()));
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(parse_pieces(join_pieces(tokenizer, all), ids), all);
  EXPECT_TRUE(parse_pieces("", ids).empty());
  auto const wrong = [&] { parse_pieces(tokenizer.piece(7) + "  " + tokenizer.piece(8), ids); };
  expect_data_error(wrong, "no piece \"\"; expected pieces with one space");
}

TEST(Pieces, AreWrittenOnOneLine) {
  std::string file = exchange_file("pieces_gemma.json");
  boost::replace_all(file, "<tool>", "\\n");
  Tokenizer const tokenizer = tokenizer_from(file);
  Tokens const tokens = tokenizer.encode("man\nman");
  ASSERT_TRUE(std::ranges::any_of(tokens, [&](auto token) { return tokenizer.piece(token) == "\n"; }));
  std::string const text = join_pieces(tokenizer, tokens);
  EXPECT_EQ(text.find('\n'), text.npos) << text;
  EXPECT_THROW(parse_pieces(text, piece_ids(tokenizer)), DataError);
}

TEST(ForbiddenWords, AreAllWaysToWriteThem) {
  fs::path const model = fs::path(HEDDLE_TEST_DATA) / "exchange" / "sentencepiece_bpe.model";
  Tokenizer const tokenizer = Tokenizer::from_model(read_whole(model));
  TemporaryDirectory const directory;
  auto const spellings = [&](std::string const& lines) {
    return forbidden_tokens(directory.write("words", lines + "\n").string(), tokenizer);
  };
  auto const found = spellings("house");
  ASSERT_GT(found.size(), 1U);
  EXPECT_EQ(found.front(), tokenizer.encode("house"));
  for (std::size_t index = 0; index < found.size(); ++index) {
    EXPECT_EQ(tokenizer.decode(found[index]), "house");
    EXPECT_EQ(std::find(found.begin() + static_cast<std::ptrdiff_t>(index) + 1, found.end(), found[index]),
              found.end());
  }
  EXPECT_EQ(spellings("a house and another house and another house").size(), 1000U);
  EXPECT_TRUE(spellings(" ").empty());
  EXPECT_EQ(spellings("house\n\nhouse").size(), 2 * found.size());
  EXPECT_TRUE(forbidden_tokens("", tokenizer).empty());
  std::string const pipe = directory / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  expect_data_error([&] { forbidden_tokens(pipe, tokenizer); }, "pipe: is not a regular file; expected words");
}

}  // namespace
}  // namespace heddle
