#include "run_directory/training_log.hpp"

#include <gmock/gmock.h>

#include <boost/json.hpp>
#include <limits>
#include <sstream>

#include "temporary_directory.hpp"

namespace heddle {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class TrainingLogTest : public testing::Test {
 protected:
  TrainingLog opened(std::int64_t step, std::string const& valid_dataset = "digest") {
    return TrainingLog::open(
        directory_, {.step = step, .steps = 100, .every = 1, .valid_dataset = valid_dataset, .parallel = parallel_},
        log_);
  }
  std::vector<std::string> lines() const {
    std::istringstream text(test::read_whole(place_.path() / "run" / "metrics.jsonl"));
    std::vector<std::string> found;
    for (std::string line; std::getline(text, line);) {
      found.push_back(line);
    }
    return found;
  }
  static StepReport report(std::int64_t step) {
    return {.step = step,
            .result = {.loss = 3.616267673897025, .nll = 3.5},
            .learning_rate = 0.0007,
            .tokens = {},
            .epochs = 2.25};
  }

  test::TemporaryDirectory place_;
  RunDirectory directory_ = RunDirectory::open(place_.path() / "run");
  ParallelState parallel_;
  RunLog log_{true, false, Verbosity::quiet};
};

TEST_F(TrainingLogTest, ALineIsJsonAlsoWhereTheLossIsNotFinite) {
  TrainingLog log = opened(0);
  log.step(report(1), ValidationResult{.loss = 800});
  log.step(report(2), ValidationResult{.loss = std::numeric_limits<double>::quiet_NaN()});
  auto const found = lines();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_THAT(found[0], StartsWith(R"({"step":1,"train_loss":3.616267673897025,"learning_rate":0.0007,)"
                                   R"("gradient_norm":0,"tokens":0,"epoch":2.25,"train_nll":3.5,)"));
  EXPECT_THAT(found[0], HasSubstr(R"("valid_loss":800,"valid_perplexity":null)"));
  EXPECT_THAT(found[1], HasSubstr(R"("valid_loss":null,"valid_perplexity":null)"));
  for (std::string const& line : found) {
    EXPECT_NO_THROW(boost::json::parse(line)) << line;
  }
}

TEST_F(TrainingLogTest, TheBestBleuIsThatOfAllStarts) {
  {
    TrainingLog log = opened(0);
    EXPECT_FALSE(log.best_bleu());
    log.step(report(1), ValidationResult{.loss = 1});
    EXPECT_FALSE(log.best_bleu());
    log.step(report(2), ValidationResult{.loss = 1, .bleu = 20.5});
    log.step(report(3), ValidationResult{.loss = 1, .bleu = 20});
    log.step(report(4), ValidationResult{.loss = 1, .bleu = 30});
  }
  TrainingLog resumed = opened(3);
  ASSERT_TRUE(resumed.best_bleu());
  EXPECT_EQ(resumed.best_bleu()->bleu, 20.5) << "step 4 was not kept";
  EXPECT_EQ(resumed.best_bleu()->step, 2);
  resumed.step(report(4), ValidationResult{.loss = 1, .bleu = 25});
  EXPECT_EQ(resumed.best_bleu()->step, 4);
  EXPECT_EQ(lines().size(), 4U);
}

TEST_F(TrainingLogTest, TheBestBleuIsOnTheStartsOwnValidationSet) {
  opened(0, "first").step(report(1), ValidationResult{.loss = 1, .bleu = 40});
  TrainingLog other = opened(1, "second");
  EXPECT_FALSE(other.best_bleu());
  other.step(report(2), ValidationResult{.loss = 1, .bleu = 30});
  TrainingLog const again = opened(2, "second");
  ASSERT_TRUE(again.best_bleu());
  EXPECT_EQ(again.best_bleu()->step, 2);
}

TEST_F(TrainingLogTest, SamplesOfAValidationAreCutBetweenCharacters) {
  std::string letters = "a";
  for (int letter = 0; letter < 300; ++letter) {
    letters += "ä";
  }
  opened(0).step(report(1), ValidationResult{.bleu = 20, .samples = {{"one | two", "eins", ""}, {letters, "b", "c"}}});
  boost::json::value const line = boost::json::parse(lines().at(0));
  boost::json::array const& rows = line.at("valid_samples").as_array();
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0], (boost::json::array{"one | two", "eins", ""}));
  // 400 bytes would end inside of a letter.
  EXPECT_EQ(rows[1].at(0).as_string(), letters.substr(0, 399) + "…");
}

TEST(MarkdownCellTest, KeepsTheColumnsOfATable) {
  EXPECT_EQ(markdown_cell("one | two||"), "one \\| two\\|\\|");
}

TEST_F(TrainingLogTest, AResumedRunKeepsLinesThatAnEarlierVersionWrote) {
  std::ofstream(place_.path() / "run" / "metrics.jsonl") << "{\"step\":1,\"valid_perplexity\":Infinity}\n";
  TrainingLog const log = opened(1);
  EXPECT_EQ(lines().size(), 1U);
}

}  // namespace
}  // namespace heddle
