#include "inference/line_queue.hpp"

#include <gtest/gtest.h>

#include <heddle/core/base/error.hpp>

#include "golden_model.hpp"
#include "test_ids.hpp"

namespace heddle {
namespace {

using Tokens = std::vector<std::int32_t>;

ModelConfig small_model() {
  ModelConfig config;
  config.encoder.layers = config.decoder.layers = 1;
  config.d_model = 16;
  config.d_ff = 24;
  config.heads = 2;
  config.max_length = 16;
  return config;
}

class LineQueueTest : public testing::Test {
 protected:
  GenerationModel model() const { return {test_.model, test_ids, 16}; }

  LineQueue queue(GenerationOptions const& options, std::size_t max_lines, std::size_t count = 1) {
    std::vector<std::unique_ptr<Generation>> generations;
    while (generations.size() < count) {
      generations.push_back(
          std::make_unique<Generation>(test_.bench.execution(), test_.bench.arena(), model(), options));
    }
    return {std::move(generations), max_lines};
  }

  /// Line n of a text that has empty lines and a few long ones.
  static EncodedLine encoded(std::int64_t number) {
    if (number % 5 == 2) {
      return {};
    }
    auto const length = static_cast<std::size_t>(number % 7 == 3 ? 14 : number % 3);
    return {Tokens(length, static_cast<std::int32_t>(3 + number % 17))};
  }

  TestModel test_{small_model(), {23, 23, true}, DType::float64};
};

TEST_F(LineQueueTest, ResultsComeInTheOrderOfTheLines) {
  constexpr std::int64_t lines = 60;
  GenerationOptions options{.beam_size = 2, .max_length = 6};
  std::vector<Tokens> sources;
  for (std::int64_t number = 1; number <= lines; ++number) {
    sources.push_back(encoded(number).tokens.value_or(Tokens()));
  }
  auto const expected = generate(test_.bench.execution(), test_.bench.arena(), model(), sources, options);
  for (auto const& [max_lines, batch_tokens, generations] :
       {std::tuple{1, 4096, 1}, {3, 4096, 1}, {2000, 24, 1}, {2000, 1, 1}, {7, 12, 1}, {2000, 24, 3}, {7, 4096, 2}}) {
    SCOPED_TRACE(std::to_string(max_lines) + " lines, " + std::to_string(batch_tokens) + " tokens, " +
                 std::to_string(generations) + " generations");
    options.batch_tokens = batch_tokens;
    LineQueue queue = this->queue(options, static_cast<std::size_t>(max_lines), static_cast<std::size_t>(generations));
    std::int64_t added = 0;
    std::int64_t answered = 0;
    while (added < lines || !queue.empty()) {
      while (added < lines && queue.has_room()) {
        ++added;
        EncodedLine line = encoded(added);
        line.generation = static_cast<std::size_t>(added / 4 % generations);
        queue.add({"line", added}, std::move(line));
        EXPECT_LE(added - answered, max_lines);
      }
      for (GeneratedLine const& line : queue.step()) {
        ++answered;
        EXPECT_EQ(line.line.number, answered);
        ASSERT_EQ(line.hypotheses.empty(), !encoded(answered).tokens.has_value());
        if (!line.hypotheses.empty()) {
          EXPECT_EQ(line.hypotheses[0].tokens, expected[static_cast<std::size_t>(answered - 1)][0].tokens);
        }
      }
    }
    EXPECT_EQ(answered, lines);
    EXPECT_TRUE(queue.step().empty()) << "at the end of the input";
  }
}

TEST_F(LineQueueTest, KeepsABoundedNumberOfBytes) {
  LineQueue queue = this->queue({}, 9);
  std::string const half(LineQueue::max_bytes / 2, 'x');
  queue.add({half, 1}, {});
  EXPECT_TRUE(queue.has_room());
  queue.add({half, 2}, {});
  EXPECT_FALSE(queue.has_room());
  EXPECT_EQ(queue.step().size(), 2U);
  EXPECT_TRUE(queue.has_room());
}

TEST_F(LineQueueTest, ALineThatIsTooLongIsRefused) {
  LineQueue queue = this->queue({}, 9);
  EXPECT_THROW(queue.add({"long", 1}, {Tokens(16, 3)}), DataError);
  EXPECT_TRUE(queue.empty());
}

}  // namespace
}  // namespace heddle
