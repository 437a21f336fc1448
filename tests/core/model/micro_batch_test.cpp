#include <heddle/core/tensor/execution.hpp>

#include "golden_file.hpp"
#include "golden_model.hpp"
#include "kernel_test_support.hpp"
#include "test_ids.hpp"

namespace heddle {
namespace {

ModelConfig small_model(NormPlacement norm) {
  ModelConfig config;
  config.encoder.layers = 2;
  config.decoder.layers = 2;
  config.d_model = 8;
  config.d_ff = 12;
  config.heads = 2;
  config.max_length = 64;
  config.norm = norm;
  config.dropout = 0.3;
  config.attention_dropout = 0.1;
  config.activation_dropout = 0.1;
  return config;
}

Sample sentence_pair(std::int32_t sample, int source_length, int target_length) {
  Sample pair{sample, {}, {}};
  for (int position = 0; position < source_length; ++position) {
    pair.source.tokens.push_back(3 + (sample * 7 + position * 5) % 8);
  }
  for (int position = 0; position < target_length; ++position) {
    pair.target.tokens.push_back(3 + (sample * 3 + position * 7) % 8);
  }
  return pair;
}

std::vector<Sample> const four_pairs{sentence_pair(6, 4, 2), sentence_pair(0, 0, 5), sentence_pair(3, 7, 0),
                                     sentence_pair(1, 2, 3)};

class MicroBatchTest : public testing::TestWithParam<NormPlacement> {
 protected:
  /// Adds the gradients of these pairs.
  LossSums visit(std::vector<Sample> const& pairs) {
    Pack const pack = make_pack(pairs, test_ids);
    LayerContext context = test_.bench.context(pack, true);
    return test_.model.forward_backward(context, {0.1, 0.125});
  }
  std::vector<double> gradients() { return values(test_.bench.parameters().gradients()); }

  TestModel test_{small_model(GetParam()), {11, 11, true}, DType::float64};
};

TEST_P(MicroBatchTest, SplittingAPackChangesNothing) {
  LossSums const whole = visit(four_pairs);
  auto const whole_gradients = gradients();

  for (std::size_t const cut : {1U, 2U, 3U}) {
    test_.bench.zero_gradients();
    auto const middle = four_pairs.begin() + static_cast<std::ptrdiff_t>(cut);
    LossSums const first = visit({four_pairs.begin(), middle});
    LossSums const second = visit({middle, four_pairs.end()});
    EXPECT_EQ(first.tokens + second.tokens, whole.tokens);
    EXPECT_NEAR(first.smoothed + second.smoothed, whole.smoothed, 1e-12);
    EXPECT_NEAR(first.negative_log_likelihood + second.negative_log_likelihood, whole.negative_log_likelihood, 1e-12);
    EXPECT_LE(relative_error(gradients(), whole_gradients), 1e-13) << "cut at " << cut;
  }
}

TEST_P(MicroBatchTest, TheOrderWithinAPackChangesNothing) {
  LossSums const forwards = visit(four_pairs);
  auto const forwards_gradients = gradients();
  test_.bench.zero_gradients();
  LossSums const backwards = visit({four_pairs.rbegin(), four_pairs.rend()});
  EXPECT_NEAR(backwards.smoothed, forwards.smoothed, 1e-12);
  EXPECT_LE(relative_error(gradients(), forwards_gradients), 1e-13);
}

TEST_P(MicroBatchTest, DropoutFollowsTheSample) {
  LossSums const sums = visit(four_pairs);
  std::vector<Sample> others = four_pairs;
  for (Sample& pair : others) {
    pair.number += 100;
  }
  EXPECT_GT(std::abs(visit(others).smoothed - sums.smoothed), 1e-3) << "other samples drop other elements";
  EXPECT_EQ(visit(four_pairs).smoothed, sums.smoothed) << "the same samples drop the same";
}

TEST_P(MicroBatchTest, AnEmptyPackAddsNothing) {
  LossSums const sums = visit({});
  EXPECT_EQ(sums.tokens, 0);
  EXPECT_EQ(sums.smoothed, 0);
  for (double const gradient : gradients()) {
    EXPECT_EQ(gradient, 0);
  }
}

TEST_P(MicroBatchTest, NothingStaysInTheArena) {
  Arena& arena = test_.bench.arena();
  std::size_t const mark = arena.mark();
  visit(four_pairs);
  EXPECT_EQ(arena.mark(), mark);
  std::size_t const peak = arena.peak();
  visit(four_pairs);
  EXPECT_EQ(arena.mark(), mark);
  EXPECT_EQ(arena.peak(), peak) << "the second micro-batch needs no more than the first";
}

/// The maximum number of bytes that one micro-batch had in use.
struct Peaks {
  double arena, scratch;
};

/// The peak of a micro-batch of `count` sentence pairs whose sides have `length` tokens each.
Peaks peaks_of(NormPlacement norm, int count, int length) {
  ModelConfig config = small_model(norm);
  config.max_length = 512;
  TestModel test(config, {11, 11, true}, DType::float32, KernelChoices());
  std::vector<Sample> pairs;
  for (std::int32_t sample = 0; sample < count; ++sample) {
    pairs.push_back(sentence_pair(sample, length - 1, length - 1));  // an end token follows
  }
  Pack const pack = make_pack(pairs, test_ids);
  LayerContext context = test.bench.context(pack, true);
  static_cast<void>(test.model.forward_backward(context, {0.1, 1}));
  return {static_cast<double>(test.bench.arena().peak()), static_cast<double>(test.bench.execution().scratch.peak())};
}

TEST_P(MicroBatchTest, MemoryIsLinearInTokens) {
  // Longer sentences, not more of them, so that memory quadratic in the sentence would show.
  std::vector<double> peaks;
  for (int const length : {128, 256, 512}) {
    peaks.push_back(peaks_of(GetParam(), 1, length).arena);
  }
  // Memory that does not depend on the tokens drops out of the differences.
  EXPECT_NEAR((peaks[2] - peaks[1]) / (peaks[1] - peaks[0]), 2, 0.1);
}

// A kernel, or the library that it calls, may cut a product into blocks and take scratch for the largest block that it
// uses, in steps of its own choice: `onednn` has blocks of 64, 128, 256 and 512 tokens, and oneDNN chooses the scratch
// of each. So scratch is bounded in two ways that hold for any such steps: it does not depend on the sentences that the
// tokens form, and more tokens than the largest block take at most in proportion more.
TEST_P(MicroBatchTest, ScratchIsLinearInTokens) {
  int const threads = Kokkos::DefaultExecutionSpace().concurrency();
  double const one_sentence = peaks_of(GetParam(), 1, 512).scratch;
  EXPECT_LE(one_sentence, 1.05 * peaks_of(GetParam(), 4, 128).scratch) << "the same tokens in shorter sentences";
  // Packed panels, for example, are those of the threads at work: few threads may have been at work on fewer tokens.
  EXPECT_LE(peaks_of(GetParam(), 4, 512).scratch, 4.1 * threads * one_sentence) << "four times the tokens";
}

INSTANTIATE_TEST_SUITE_P(Norms, MicroBatchTest, testing::Values(NormPlacement::post, NormPlacement::pre),
                         [](auto const& case_info) { return std::string(name_of(case_info.param)); });

TEST(ChunkedLossTest, ChunksOfTokensMakeNoDifference) {
  // A pack of 300 target tokens is more than one chunk of the loss; the same sentences in separate packs are less.
  ModelConfig const config = small_model(NormPlacement::pre);
  std::vector<Sample> pairs;
  for (std::int32_t sample = 0; sample < 6; ++sample) {
    pairs.push_back(sentence_pair(sample, 5, 49 + sample % 2));
  }
  TestModel together(config, {11, 11, true}, DType::float64);
  TestModel alone(config, {11, 11, true}, DType::float64);
  auto const visit = [](TestModel& test, std::vector<Sample> const& some) {
    Pack const pack = make_pack(some, test_ids);
    LayerContext context = test.bench.context(pack, true);
    return test.model.forward_backward(context, {0.1, 0.01});
  };
  LossSums const sums = visit(together, pairs);
  EXPECT_GT(sums.tokens, 256);
  double smoothed = 0;
  for (Sample const& pair : pairs) {
    smoothed += visit(alone, {pair}).smoothed;
  }
  EXPECT_NEAR(smoothed, sums.smoothed, 1e-10);
  EXPECT_LE(
      relative_error(values(alone.bench.parameters().gradients()), values(together.bench.parameters().gradients())),
      1e-12);
}

}  // namespace
}  // namespace heddle
