#include <heddle/io/dataset/dataset.hpp>

#include "prepare_fixture.hpp"
#include "read_lines.hpp"

namespace heddle {
namespace {

/// Prepares 400 pairs of which a third are dropped: some are doubled, some have a side without its words.
class PrepareCleaning : public PrepareTest {
 protected:
  PrepareCleaning() {
    auto const english = read_lines(options_.source.front());
    auto const german = read_lines(options_.target.front());
    std::string source, target, weights, kept_weights;
    for (std::size_t line = 0; line < english.size(); ++line) {
      bool const second = line % 5 == 4;  // the same pair again
      bool const wrong = line % 7 == 3;
      std::size_t const from = second ? line - 1 : line;
      source += english[from] + "\n";
      target += (wrong ? "12345" : german[from]) + "\n";
      weights += fmt::format("{}\n", line + 1);
      if (!wrong && !(second && (line - 1) % 7 != 3)) {
        kept_.push_back(line);
        sources_.push_back(english[from]);
        targets_.push_back(german[from]);
      }
    }
    options_.source = {inputs_.write("noisy.en", source)};
    options_.target = {inputs_.write("noisy.de", target)};
    options_.sentence_weights = {inputs_.write("weights", weights)};
    options_.clean = inputs_.write("rules.toml", "[characters]\n[duplicates]\n");
  }

  std::vector<std::size_t> kept_;  ///< from 0
  std::vector<std::string> sources_, targets_;
};

TEST_F(PrepareCleaning, LeavesOutWhatTheRulesDrop) {
  options_.dropped = outputs_ / "dropped.tsv";
  PrepareReport const report = run();
  ASSERT_TRUE(report.cleaning.has_value());
  EXPECT_EQ(report.cleaning->lines, 400);
  EXPECT_EQ(report.cleaning->kept, std::ssize(kept_));
  EXPECT_EQ(report.train->samples, std::ssize(kept_));
  EXPECT_EQ(report.train->repeats, 0);
  EXPECT_EQ(report.valid->samples, 20);
  Dataset const dataset = Dataset::open(options_.directory / "train.h5");
  ASSERT_EQ(dataset.size(), std::ssize(kept_));
  for (std::size_t sample = 0; sample < kept_.size(); ++sample) {
    auto const index = static_cast<std::int64_t>(sample);
    EXPECT_EQ(dataset.source_tokenizer().decode(dataset.source(index)), sources_[sample]);
    EXPECT_EQ(dataset.target_tokenizer().decode(dataset.target(index)), targets_[sample]);
  }
  auto const dropped = read_lines(options_.dropped);
  ASSERT_EQ(dropped.size(), 400 - kept_.size());
  EXPECT_THAT(dropped.front(), StartsWith("4\tcharacters\tthe target has 0 % letters; min_letters = 0.3\t"));
}

TEST_F(PrepareCleaning, LearnsTheVocabularyFromWhatIsKept) {
  run();
  std::string const model = read_whole(options_.directory / "vocab.model");
  std::string source, target, weights;
  for (std::size_t sample = 0; sample < kept_.size(); ++sample) {
    source += sources_[sample] + "\n";
    target += targets_[sample] + "\n";
    weights += fmt::format("{}\n", kept_[sample] + 1);
  }
  options_.source = {inputs_.write("clean.en", source)};
  options_.target = {inputs_.write("clean.de", target)};
  options_.sentence_weights = {inputs_.write("weights.clean", weights)};
  options_.clean.reset();
  auto const noisy = options_.directory;
  options_.directory = outputs_ / "clean";
  run();
  EXPECT_EQ(read_whole(options_.directory / "vocab.model"), model);
  EXPECT_EQ(read_whole(options_.directory / "train.h5"), read_whole(noisy / "train.h5"));
}

TEST_F(PrepareCleaning, ComparesWithTheValidationText) {
  options_.valid_source = {inputs_.write("valid.noisy.en", sources_[3] + "\n" + sources_[5] + "\n")};
  options_.valid_target = {inputs_.write("valid.noisy.de", "eins zwei\ndrei vier\n")};
  options_.clean = inputs_.write("rules.toml", "[characters]\n[overlap]\nmin_words = 1\n[duplicates]\n");
  PrepareReport const report = run();
  EXPECT_EQ(report.train->samples, std::ssize(kept_) - 2);
}

TEST_F(PrepareCleaning, RefusesWhatCannotBe) {
  options_.clean = inputs_ / "no-rules.toml";
  expect_contains(failure(), {"--clean", "no-rules.toml: does not exist"});
  options_.clean = inputs_.write("rules.toml", "[length]\nmin_words = 150\n");
  expect_contains(failure(), "[length] drops 400 of 400 pairs, and nothing is left");
  options_.clean.reset();
  options_.dropped = outputs_ / "dropped";
  expect_contains(failure(), "--clean leaves out, which is not given");
}

}  // namespace
}  // namespace heddle
