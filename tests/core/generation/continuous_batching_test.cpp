#include <heddle/core/tensor/device_work.hpp>

#include "generation_sample.hpp"

namespace heddle {
namespace {

using namespace generation_sample;

/// Many short sources, a few long ones and empty ones.
std::vector<Tokens> mixed_sources() {
  std::vector<Tokens> sources;
  for (std::size_t index = 0; index < 40; ++index) {
    std::size_t const length = index % 13 == 5 ? 14 : index % 4;
    Tokens source;
    for (std::size_t at = 0; at < length; ++at) {
      source.push_back(static_cast<std::int32_t>(3 + (index * 7 + at * at + 3 * at) % 6));
    }
    sources.push_back(source);
  }
  return sources;
}

std::vector<std::size_t> ascending(std::size_t count) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  return order;
}

/// Greedy, a beam, and tokens that are drawn, of a model that translates and of one that continues.
class ContinuousBatching : public testing::TestWithParam<std::tuple<SampleOptions, GenerationOptions>> {};

TEST_P(ContinuousBatching, AResultDependsNeitherOnTheOrderNorOnTheCompany) {
  auto [model, options] = GetParam();
  GenerationSample sample(model);
  auto const sources = mixed_sources();
  auto order = ascending(sources.size());
  auto const expected = sample.generate(sources, options);
  auto const expect_equal = [&](std::vector<std::vector<Hypothesis>> const& results, char const* how) {
    for (std::size_t index = 0; index < sources.size(); ++index) {
      SCOPED_TRACE(std::string(how) + ", source " + std::to_string(index));
      expect_same(results[index], expected[index], 0);
    }
  };
  for (std::int64_t const batch_tokens : {1, 20, 70, 100000}) {
    options.batch_tokens = batch_tokens;
    expect_equal(sample.stream(sources, options, order), "forwards");
    std::ranges::reverse(order);
    expect_equal(sample.stream(sources, options, order), "backwards");
    std::ranges::reverse(order);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, ContinuousBatching,
    testing::Combine(testing::Values(SampleOptions{}, SampleOptions{.max_length = 24, .prompts = true},
                                     SampleOptions{.positions = Positions::rotary,
                                                   .max_length = 24,
                                                   .prompts = true,
                                                   .self_attention = {"mask", std::string("prefix")}},
                                     SampleOptions{.self_attention = {"score", std::string("linear")}}),
                     testing::Values(GenerationOptions{.max_length = 9}, GenerationOptions{.beam_size = 4, .n_best = 2},
                                     GenerationOptions{.sampling = {.temperature = 1.5, .seed = 4}})));

TEST(ContinuousBatchingSteps, ARemovedSourceHasNoResultAndChangesNoOther) {
  GenerationSample sample({});
  auto const sources = mixed_sources();
  GenerationOptions const options{.beam_size = 3, .max_length = 9, .batch_tokens = 60};
  auto const expected = sample.generate(sources, options);
  Arena scratch;
  Arena arena;
  Execution execution({}, scratch);
  Generation generation(execution, arena, sample.generation_model(), options);
  for (std::size_t index = 0; index < sources.size(); ++index) {
    generation.add(static_cast<std::int64_t>(index), sources[index]);
  }
  EXPECT_TRUE(generation.remove(2)) << "it waits";
  EXPECT_FALSE(generation.remove(2));
  generation.step();
  EXPECT_TRUE(generation.remove(0)) << "it is live";
  std::size_t done = 0;
  while (!generation.empty()) {
    for (Generated const& generated : generation.step()) {
      SCOPED_TRACE("source " + std::to_string(generated.number));
      EXPECT_TRUE(generated.number != 0 && generated.number != 2);
      expect_same(generated.hypotheses, expected[static_cast<std::size_t>(generated.number)], 0);
      ++done;
    }
  }
  EXPECT_EQ(done, sources.size() - 2);
  EXPECT_FALSE(generation.remove(5)) << "it is done";
}

TEST(ContinuousBatchingSteps, OthersEnterWhereASentenceIsDone) {
  GenerationSample sample({.max_length = 64});
  constexpr std::size_t at_once = 4;
  std::vector<Tokens> const sources(64, Tokens{4});
  std::size_t steps = 0;
  GenerationOptions const options{
      .max_length = 40, .batch_tokens = 2 * at_once, .sampling = {.temperature = 2}};  // results of many lengths
  auto const results = sample.stream(sources, options, ascending(sources.size()), [&](std::size_t) { ++steps; });
  std::size_t all = 0;
  std::size_t longest = 0;
  std::size_t in_batches = 0;
  for (std::size_t first = 0; first < results.size(); first += at_once) {
    std::size_t longest_of_batch = 0;
    for (std::size_t index = first; index < first + at_once; ++index) {
      std::size_t const tokens = std::min<std::size_t>(results[index][0].tokens.size() + 1, 41);
      all += tokens;
      longest_of_batch = std::max(longest_of_batch, tokens);
    }
    longest = std::max(longest, longest_of_batch);
    in_batches += longest_of_batch;
  }
  EXPECT_LE(steps, all / at_once + longest);
  EXPECT_GT(in_batches, all / at_once + longest) << "the sentences do not test this";
}

TEST(ContinuousBatchingSteps, UploadOnce) {
  if (!device_work()) {
    GTEST_SKIP() << "only a build with HEDDLE_EMULATE_DEVICE (preset emulated-device) counts a device's work";
  }
  for (bool const prompts : {false, true}) {
    for (std::int64_t const beam_size : {1, 4}) {
      GenerationSample sample({.vocabulary = 60, .dtype = DType::float32, .prompts = prompts});
      auto const sources = sample_sources();
      int steps = 0;
      reset_device_work();
      sample.stream(sources, {.beam_size = beam_size}, ascending(sources.size()), [&](std::size_t) {
        DeviceWork const work = device_work().value();
        EXPECT_EQ(work.copies_to_device, steps == 0 && !prompts ? 2 : 1) << "the step's integers, and new sources";
        EXPECT_EQ(work.copies_to_host, 1) << "the ranked tokens";
        EXPECT_EQ(work.fences, 0);
        ++steps;
        reset_device_work();
      });
      EXPECT_GT(steps, 3);
    }
  }
}

}  // namespace
}  // namespace heddle
