#include "inference/forced_decoding.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/core/training/micro_batch_source.hpp>
#include <numeric>

#include "exchange/importing.hpp"
#include "inference/alignment.hpp"
#include "inference/forbidden_words.hpp"
#include "inference/translation.hpp"
#include "inspection/model/probe.hpp"
#include "kernel_test_support.hpp"
#include "temporary_directory.hpp"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using testing::DoubleNear;
using testing::HasSubstr;
using testing::Pointwise;
using testing::ThrowsMessage;

using Tokens = std::vector<std::int32_t>;

/// A small imported model, without languages and with them.
class ForcedDecodingTest : public testing_support::KernelTest, public testing::WithParamInterface<char const*> {
 protected:
  ForcedDecodingTest() {
    import_model(execution_, fs::path(HEDDLE_TEST_DATA) / "exchange" / GetParam(), directory_ / "run");
    options_.checkpoint = (directory_ / "run").string();
    options_.execution = &execution_;
  }
  std::unique_ptr<TrainedModel> open(TrainedModelOptions const& options) const {
    auto model = TrainedModel::open(options, [](ModelDescription const&) {});
    model->choose_languages(has_languages() ? Languages{"eng_Latn", "deu_Latn"} : Languages());
    return model;
  }
  bool has_languages() const { return std::string_view(GetParam()) == "nllb"; }

  /// The weights of each head in the last cross-attention but one, of a model whose attention is the reference's.
  SequenceAttention observed(SentencePair const& pair) const {
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

  test::TemporaryDirectory directory_;
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
      SentencePair pair{0, frame.source, frame.target};
      pair.source.insert(pair.source.end(), source.begin(), source.end());
      pair.target.insert(pair.target.end(), target.begin(), target.end());
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
  EXPECT_THAT(refused({.layer = 9}), ThrowsMessage<UsageError>(HasSubstr("layers with cross-attention, from 1")));
  EXPECT_THAT(refused({.layer = 0}), ThrowsMessage<UsageError>(HasSubstr("alignments of layer 0")));
  EXPECT_THAT(refused({.head = 0}), ThrowsMessage<UsageError>(HasSubstr("alignments of head 0")));
  EXPECT_THAT(refused({.head = 64}), ThrowsMessage<UsageError>(HasSubstr("heads, from 1")));
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
  Translation const translation = translations_of(*model, {{}, line, {{{7, 4}, -2, -1}}}).front();
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
  EXPECT_EQ(model->generate(std::span(&*cut.tokens, 1), {}, std::span(&cut.start, 1)).front().size(), 1U);
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

TEST(Alignment, WordsAreWhatWhiteSpaceSeparates) {
  fs::path const model = fs::path(HEDDLE_TEST_DATA) / "exchange" / "sentencepiece_bpe.model";
  Tokenizer const tokenizer = Tokenizer::from_model(test::read_whole(model));
  for (std::string const text : {"a house, and another one.", "x", "it's  twenty-three"}) {
    auto const tokens = tokenizer.encode(text);
    auto const words = words_of(tokenizer, tokens);
    std::vector<std::string> found(static_cast<std::size_t>(words.back()) + 1);
    for (std::size_t at = 0; at < tokens.size(); ++at) {
      auto const word = static_cast<std::size_t>(words[at]);
      found[word] += tokenizer.piece(tokens[at]);
    }
    std::size_t const spaces = static_cast<std::size_t>(std::ranges::count(tokenizer.decode(tokens), ' '));
    EXPECT_EQ(found.size(), spaces + 1) << text;
  }
}

TEST(ForbiddenWords, AreAllWaysToWriteThem) {
  fs::path const model = fs::path(HEDDLE_TEST_DATA) / "exchange" / "sentencepiece_bpe.model";
  Tokenizer const tokenizer = Tokenizer::from_model(test::read_whole(model));
  auto const found = spellings("house", tokenizer);
  ASSERT_GT(found.size(), 1U);
  EXPECT_EQ(found.front(), tokenizer.encode("house"));
  for (std::size_t index = 0; index < found.size(); ++index) {
    EXPECT_EQ(tokenizer.decode(found[index]), "house");
    EXPECT_EQ(std::find(found.begin() + static_cast<std::ptrdiff_t>(index) + 1, found.end(), found[index]),
              found.end());
  }
  EXPECT_EQ(spellings("a house and another house and another house", tokenizer).size(), 1000U);
  EXPECT_TRUE(spellings(" ", tokenizer).empty());
  test::TemporaryDirectory const directory;
  EXPECT_EQ(forbidden_tokens(directory.write("words", "house\n\nhouse\n").string(), tokenizer).size(),
            2 * found.size());
  EXPECT_TRUE(forbidden_tokens("", tokenizer).empty());
}

}  // namespace
}  // namespace heddle
