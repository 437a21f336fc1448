#include "run/metrics/training_log.hpp"

#include <boost/json.hpp>

#include "test.hpp"

namespace heddle {
namespace {

class TrainingLogTest : public testing::Test {
 protected:
  TrainingLog opened(std::int64_t step, std::string const& valid_dataset = "digest", std::string const& begun_line = "",
                     std::int64_t every = 1) {
    return TrainingLog::open(directory_,
                             {.step = step,
                              .steps = 100,
                              .every = every,
                              .measures = {loss_, bleu_, ter_, medical_},
                              .valid_datasets = {{"", valid_dataset}, {"medical", "other"}},
                              .corpus_tags = {{"books", "<2de>"}, {"news", "<2de>"}, {"web", "<2fr>"}},
                              .parallel = parallel_,
                              .begun_line = begun_line},
                             log_);
  }
  std::vector<std::string> lines() const { return lines_of(read_whole(place_.path() / "run" / "metrics.jsonl")); }
  static StepReport report(std::int64_t step) {
    return {.step = step,
            .result = {.loss = 3.616267673897025, .nll = 3.5},
            .learning_rate = 0.0007,
            .tokens = {},
            .epochs = 2.25};
  }

  /// "MEASURE VALUE step STEP" of a measure.
  static std::string best(TrainingLog const& log, Measure const& measure) {
    for (auto const& [each, value, step] : log.best_values()) {
      if (each.key() == measure.key()) {
        return fmt::format("{} {} step {}", each.name(), each.number(value), step);
      }
    }
    return "not measured";
  }

  Measure const loss_{"loss"}, bleu_{"bleu", "", true}, ter_{"ter"}, medical_{"bleu", "medical", true};
  TemporaryDirectory place_;
  RunDirectory directory_ = RunDirectory::open(place_.path() / "run");
  ParallelState parallel_;
  RunLog log_{true, false, Verbosity::quiet};
};

TEST_F(TrainingLogTest, ALineIsJsonAlsoWhereTheLossIsNotFinite) {
  TrainingLog log = opened(0);
  log.step(report(1), ValidationResult{.values = {{loss_, 800}}});
  log.step(report(2), ValidationResult{.values = {{loss_, std::numeric_limits<double>::quiet_NaN()}}});
  auto const found = lines();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_THAT(found[0], StartsWith(R"({"step":1,"train_loss":3.616267673897025,"learning_rate":0.0007,)"
                                   R"("gradient_norm":0,"tokens":0,"epoch":2.25,"train_nll":3.5,)"));
  expect_contains(found[0], R"("valid_loss":800,"valid_perplexity":null)");
  expect_contains(found[1], R"("valid_loss":null,"valid_perplexity":null)");
  for (std::string const& line : found) {
    EXPECT_NO_THROW(boost::json::parse(line)) << line;
  }
}

TEST_F(TrainingLogTest, ALineHasThePassesOverEachCorpus) {
  TrainingLog log = opened(0);
  StepReport mixed = report(1);
  mixed.corpus_epochs = {{"news", 2.5}, {"web", 0.25}};
  log.step(mixed, std::nullopt);
  expect_contains(lines().front(), R"("corpus_epochs":{"news":2.5,"web":0.25})");
}

TEST_F(TrainingLogTest, ALineHasTheLossOfEachCorpusAndTagByTokens) {
  TrainingLog log = opened(0, "digest", "", 2);
  StepReport mixed = report(1);
  mixed.corpus_losses = {{"news", {30, 10}}, {"web", {8, 2}}};
  log.step(mixed, std::nullopt);
  mixed.step = 2;
  mixed.corpus_losses = {{"books", {5, 20}}, {"news", {10, 10}}};
  log.step(mixed, std::nullopt);
  expect_contains(lines().at(0),
                  R"("corpus_nll":{"books":0.25,"news":2,"web":4},"tag_nll":{"<2de>":1.125,"<2fr>":4}})");
  mixed.step = 4;
  log.step(mixed, std::nullopt);
  expect_contains(lines().at(1), R"("corpus_nll":{"books":0.25,"news":1})");  // web had no sample
  EXPECT_EQ(lines().at(1).find("tag_nll"), std::string::npos) << "there is one tag";
}

TEST_F(TrainingLogTest, ALineHasTheLoadOfEachMixturesExperts) {
  TrainingLog log = opened(0, "digest", "", 2);
  StepReport loaded = report(1);
  loaded.result.expert_loads = {{"encoder.layers.1.mixture_of_experts", {1, 3}, 0},
                                {"decoder.layers.0.mixture_of_experts", {8, 0}, 3}};
  log.step(loaded, std::nullopt);
  EXPECT_TRUE(lines().empty());
  loaded.step = 2;
  loaded.result.expert_loads = {{"encoder.layers.1.mixture_of_experts", {3, 1}, 0},
                                {"decoder.layers.0.mixture_of_experts", {8, 0}, 1}};
  log.step(loaded, std::nullopt);
  expect_contains(
      lines().at(0),
      R"("expert_load":{"decoder.layers.0.mixture_of_experts":[1,0],)"
      R"("encoder.layers.1.mixture_of_experts":[0.5,0.5]},)"
      R"("expert_entropy":{"decoder.layers.0.mixture_of_experts":0,"encoder.layers.1.mixture_of_experts":1},)"
      R"("expert_dropped":{"decoder.layers.0.mixture_of_experts":0.25,)"
      R"("encoder.layers.1.mixture_of_experts":0})");
  log.step(report(4), std::nullopt);
  EXPECT_EQ(lines().at(1).find("expert"), std::string::npos) << "a model without mixtures";
}

TEST_F(TrainingLogTest, AnInterruptedLineIsThatOfAnUndisturbedRun) {
  auto const steps = [&](TrainingLog& log, std::int64_t from, std::int64_t to) {
    for (std::int64_t step = from; step <= to; ++step) {
      StepReport each = report(step);
      each.result.loss = 1.0 / static_cast<double>(step);
      each.result.nll = 0.1 * static_cast<double>(step);
      each.tokens.all = 100;
      each.corpus_losses = {{"news", {0.1 * static_cast<double>(step), 3}}};
      each.result.expert_loads = {{"layer", {static_cast<double>(step), 1}, 0.5 * static_cast<double>(step)}};
      log.count_repeated(true);
      log.step(each, std::nullopt);
    }
  };
  auto const values = [&] {
    boost::json::object line = boost::json::parse(lines().back()).as_object();
    for (char const* const timed : {"tokens_per_second", "seconds", "tokens"}) {
      line.erase(timed);
    }
    return line;
  };
  {
    TrainingLog undisturbed = opened(0, "digest", "", 10);
    EXPECT_EQ(undisturbed.begun_line(), "");
    steps(undisturbed, 1, 10);
    EXPECT_EQ(undisturbed.begun_line(), "");
  }
  boost::json::object const expected = values();
  std::string begun;
  {
    TrainingLog killed = opened(0, "digest", "", 10);
    steps(killed, 1, 7);
    begun = killed.begun_line();
  }
  {
    TrainingLog resumed = opened(7, "digest", begun, 10);
    steps(resumed, 8, 10);
  }
  EXPECT_EQ(values(), expected);
  TrainingLog other = opened(7, "digest", R"({"steps":"of another version"})", 10);
  EXPECT_EQ(other.begun_line(), "");
}

TEST_F(TrainingLogTest, ALateValueHasALineOfItsStep) {
  TrainingLog log = opened(0);
  log.step(report(1), ValidationResult{.values = {{loss_, 1}}});
  log.step(report(2), std::nullopt);
  log.validation(1, ValidationResult{.values = {{bleu_, 20}}});
  EXPECT_EQ(lines().at(2), R"({"step":1,"valid_bleu":20,"valid_dataset":"digest","valid_dataset/medical":"other"})");
  EXPECT_EQ(best(log, bleu_), "BLEU 20.00 step 1");
  EXPECT_EQ(best(opened(2), bleu_), "BLEU 20.00 step 1") << "also for the start that resumes";
  EXPECT_EQ(lines().size(), 3U);
  opened(0);
  EXPECT_EQ(lines().size(), 0U);
}

TEST_F(TrainingLogTest, ProgressHasTheEpochsOfSomeCorpora) {
  RunLog shown(true, false, Verbosity::normal);
  testing::internal::CaptureStdout();
  StepReport mixed = report(100);
  mixed.corpus_epochs = {{"a", 2.5}, {"b", 0.25}};
  auto log = TrainingLog::open(directory_, {.steps = 100, .every = 1, .parallel = parallel_}, shown);
  log.step(mixed, std::nullopt);
  mixed.corpus_epochs = {{"a", 2.5}, {"b", 0.25}, {"c", 1}, {"d", 2}, {"e", 3}, {"f", 3}};
  log.step(mixed, std::nullopt);
  std::string const text = testing::internal::GetCapturedStdout();
  expect_contains(text, "  epoch 2.25 (a 2.50, b 0.25)  ");
  expect_contains(text, "  epoch 2.25 (a 2.50, b 0.25, c 1.00, d 2.00, …)  ");
}

TEST_F(TrainingLogTest, EachValueHasAKeyWithItsSet) {
  opened(0).step(report(1),
                 ValidationResult{.values = {{loss_, 1}, {bleu_, 20}, {{"loss", "medical"}, 2}, {medical_, 8}}});
  expect_contains(lines()[0], R"("valid_loss":1,"valid_perplexity":2.718281828459045,"valid_bleu":20,)"
                              R"("valid_loss/medical":2,"valid_perplexity/medical":7.38905609893065,)"
                              R"("valid_bleu/medical":8,"valid_dataset":"digest","valid_dataset/medical":"other")");
}

TEST_F(TrainingLogTest, EachSetHasALineOfAValidation) {
  RunLog shown(true, false, Verbosity::normal);
  testing::internal::CaptureStdout();
  TrainingLog::open(directory_, {.steps = 100, .every = 1, .measures = {loss_, medical_}, .parallel = parallel_}, shown)
      .step(report(1), ValidationResult{.values = {{loss_, 1}, {bleu_, 20}, {{"loss", "medical"}, 2}, {medical_, 8}}});
  expect_contains(testing::internal::GetCapturedStdout(),
                  "step 1: validation loss 1.0000, perplexity 2.7183, BLEU 20.00\n"
                  "step 1: medical loss 2.0000, medical perplexity 7.3891, medical BLEU 8.00\n");
}

TEST_F(TrainingLogTest, TheBestValuesAreThoseOfAllStarts) {
  {
    TrainingLog log = opened(0);
    log.step(report(1), ValidationResult{.values = {{loss_, std::numeric_limits<double>::infinity()}}});
    EXPECT_EQ(best(log, loss_), "validation loss 0.0000 step 0");
    log.step(report(2), ValidationResult{.values = {{loss_, 2}, {bleu_, 20.5}, {ter_, 70}, {medical_, 3}}});
    log.step(report(3), ValidationResult{.values = {{loss_, 1}, {bleu_, 20}, {ter_, 80}, {medical_, 4}}});
    log.step(report(4), ValidationResult{.values = {{loss_, 1}, {bleu_, 30}}});
  }
  TrainingLog resumed = opened(3);
  EXPECT_EQ(best(resumed, loss_), "validation loss 1.0000 step 3");
  EXPECT_EQ(best(resumed, bleu_), "BLEU 20.50 step 2") << "step 4 was not kept";
  EXPECT_EQ(best(resumed, ter_), "TER 70.00 step 2") << "lower is better";
  EXPECT_EQ(best(resumed, medical_), "medical BLEU 4.00 step 3");
  resumed.step(report(4), ValidationResult{.values = {{bleu_, 25}}});
  EXPECT_EQ(best(resumed, bleu_), "BLEU 25.00 step 4");
  EXPECT_EQ(lines().size(), 4U);
}

TEST_F(TrainingLogTest, TheBestValueIsOnTheStartsOwnValidationSet) {
  opened(0, "first").step(report(1), ValidationResult{.values = {{bleu_, 40}, {medical_, 9}}});
  TrainingLog other = opened(1, "second");
  EXPECT_EQ(best(other, bleu_), "BLEU 0.00 step 0");
  EXPECT_EQ(best(other, medical_), "medical BLEU 9.00 step 1") << "this set is the same";
  other.step(report(2), ValidationResult{.values = {{bleu_, 30}}});
  EXPECT_EQ(best(opened(2, "second"), bleu_), "BLEU 30.00 step 2");
}

TEST_F(TrainingLogTest, SamplesOfAValidationAreCutBetweenCharacters) {
  std::string letters = "a";
  for (int letter = 0; letter < 300; ++letter) {
    letters += "ä";
  }
  opened(0).step(report(1), ValidationResult{.samples = {{"one | two", "eins", ""}, {letters, "b", "c"}}});
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
