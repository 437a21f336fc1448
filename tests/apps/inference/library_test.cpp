#include <heddle/model.hpp>

#include "exchange/importing.hpp"
#include "kernel_test_support.hpp"

namespace heddle {
namespace {

/// Small imported models, by the functions for lines of text.
class LibraryTest : public KernelTest {
 protected:
  std::unique_ptr<TrainedModel> open(std::string const& name) {
    import_model(execution_, std::filesystem::path(HEDDLE_TEST_DATA) / "exchange" / name, directory_ / name);
    TrainedModelOptions options{{.checkpoint = (directory_ / name).string()}};
    options.execution = &execution_;
    return TrainedModel::open(options);
  }

  TemporaryDirectory directory_;
  std::vector<std::string> const lines_{"a b", " ", "b a b"};
};

TEST_F(LibraryTest, TheMeanOfADecodersLogitsAreThoseOfItsEmbedding) {
  auto const model = open("gpt2");
  std::vector<std::int32_t> const tokens{5, 9, 200};
  std::vector<float> const vector = model->embed(std::span(&tokens, 1)).front();
  TokenSequence const sequence{0, {model->vocabulary().special_ids().target.begin, 5, 9, 200}, {5, 9, 200, 1}};
  std::vector<float> const logits = model->logits(make_sequence_pack(std::span(&sequence, 1), Side::target));
  auto const table = open_checkpoints({.checkpoint = (directory_ / "gpt2").string()})
                         .checkpoints.front()
                         .read("embedding.weight");  // of the output, too
  std::size_t const width = vector.size();
  std::size_t const pieces = logits.size() / 4;
  ASSERT_EQ(table.size(), pieces * width);
  for (std::size_t piece = 0; piece < pieces; ++piece) {
    double product = 0;
    for (std::size_t column = 0; column < width; ++column) {
      product += vector[column] * table[piece * width + column];
    }
    double const mean =
        (logits[piece] + logits[pieces + piece] + logits[2 * pieces + piece] + logits[3 * pieces + piece]) / 4;
    EXPECT_NEAR(product, mean, 1e-5);
  }
}

TEST_F(LibraryTest, ALinesEmbeddingDoesNotDependOnTheOthers) {
  for (char const* const name : {"marian", "bert", "gpt2"}) {
    auto const model = open(name);
    auto const vectors = embed(*model, lines_);
    EXPECT_THAT(vectors, SizeIs(3));
    EXPECT_THAT(vectors, Each(SizeIs(static_cast<std::size_t>(model->config().model.d_model)))) << name;
    EXPECT_THAT(embed(*model, std::span(lines_).last(1)), ElementsAre(vectors.back())) << name;
    EXPECT_NE(vectors.front(), vectors.back()) << name;
  }
}

TEST_F(LibraryTest, TranslatesEachLine) {
  auto const model = open("marian");
  auto const found = translate(*model, lines_, {.beam_size = 2, .n_best = 2, .max_length = 5});
  ASSERT_THAT(found, SizeIs(3));
  EXPECT_THAT(found[0], SizeIs(2));
  EXPECT_THAT(found[1], SizeIs(1)) << "a line with white space only";
  EXPECT_THAT(found[1].front().tokens, IsEmpty());
  EXPECT_GE(found[0][0].score, found[0][1].score);
  auto const scores = score(*model, lines_, lines_);
  EXPECT_THAT(scores, Each(testing::Lt(0)));
  EXPECT_THROW(score(*model, lines_, std::span(lines_).first(2)), UsageError);
  EXPECT_THROW(generate(*model, lines_), ConfigError) << "it does not continue text";
}

TEST_F(LibraryTest, ContinuesEachPrompt) {
  auto const model = open("gpt2");
  auto const found = generate(*model, lines_, {.max_length = 4});
  ASSERT_THAT(found, SizeIs(3));
  std::vector<std::vector<std::int32_t>> const prompts{model->vocabulary().target.encode(lines_[0])};
  EXPECT_EQ(found[0].front().tokens, model->generate(prompts, {.max_length = 4}).front().front().tokens);
  EXPECT_THROW(translate(*model, lines_), ConfigError) << "it has no encoder";
}

}  // namespace
}  // namespace heddle
