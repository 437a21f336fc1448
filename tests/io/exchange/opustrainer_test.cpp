#include <heddle/core/config/config.hpp>
#include <heddle/io/exchange/opustrainer.hpp>

#include "test.hpp"

namespace heddle {
namespace {

constexpr char const* example =
    "datasets:\n"
    "  clean: data/clean\n"
    "  dirty: [data/a.gz, data/b.gz]\n"
    "stages:\n  - start\n  - end\n"
    "start:\n  - clean 0.8\n  - dirty 0\n  - until clean 2 # Until two epochs of clean\n"
    "end:\n  mix:\n  - clean 0.4\n  - dirty 0.6\n  - until dirty inf\n"
    "seed: 1111\n"
    "trainer: /path/to/trainer/run.py\n";

class OpusTrainerTest : public testing::Test {
 protected:
  std::string converted(std::string const& text) const {
    return config_of_opustrainer(directory_.write("theirs.yml", text));
  }

  TemporaryDirectory directory_;
};

TEST_F(OpusTrainerTest, CorporaAndStagesAreThoseOfTheirConfiguration) {
  Config const config = parse_config(converted(example), "converted.toml", {});
  ASSERT_EQ(config.data.corpora.size(), 2U);
  EXPECT_EQ(config.data.corpora[1].train, (std::vector<std::string>{"data/a.gz", "data/b.gz"}));
  ASSERT_EQ(config.data.stages.size(), 2U);
  DataStage const& start = config.data.stages.front();
  EXPECT_EQ(start.title, "start");
  EXPECT_EQ(start.weights, (std::map<std::string, double>{{"clean", 0.8}, {"dirty", 0}}));
  EXPECT_EQ(start.corpus, "clean");
  EXPECT_EQ(start.epochs, 2);
  EXPECT_FALSE(config.data.stages.back().has_end());
  EXPECT_EQ(config.train.seed, 1111U);
}

TEST_F(OpusTrainerTest, ModifiersOfAStageAreThoseOfCorporaOfItsOwn) {
  std::string const text = converted(
      "datasets: {clean: c, dirty: d}\nstages: [start, end]\nstart: [clean 1, until clean 1]\n"
      "end:\n  mix: [clean 0.4, dirty 0.6, until dirty 2]\n  modifiers:\n  - TitleCase: 0.5\n"
      "modifiers:\n- UpperCase: 0.1\n- TitleCase: 0.2\nseed: 1\n");
  Config const config = parse_config(text, "converted.toml", {});
  std::map<std::string, std::map<std::string, double>> rates;
  for (CorpusConfig const& corpus : config.data.training()) {
    for (auto const& [name, setting] : corpus.modifiers) {
      auto const* const whole = std::get_if<std::int64_t>(&setting.value);
      rates[corpus.name][name] = whole != nullptr ? static_cast<double>(*whole) : std::get<double>(setting.value);
    }
  }
  std::map<std::string, double> const of_all{{"title_case", 0.2}, {"upper_case", 0.1}};
  std::map<std::string, double> const of_end{{"title_case", 0.5}, {"upper_case", 0}};
  std::map<std::string, std::map<std::string, double>> const expected{
      {"clean", of_all}, {"clean-in-end", of_end}, {"dirty-in-end", of_end}};
  EXPECT_EQ(rates, expected) << text;
  ASSERT_EQ(config.data.stages.size(), 2U);
  DataStage const& end = config.data.stages.back();
  EXPECT_EQ(end.weights, (std::map<std::string, double>{{"clean-in-end", 0.4}, {"dirty-in-end", 0.6}}));
  EXPECT_EQ(end.corpus, "dirty-in-end");
  EXPECT_THAT(converted("datasets: {a: x}\nstages: [s]\ns: {mix: [a 1, until a 1], modifiers: []}\nseed: 1\n"),
              Not(HasSubstr("modifiers]")));
}

TEST_F(OpusTrainerTest, ModifiersKeepTheirRatesAndOptions) {
  std::string const text = converted(std::string(example) +
                                     "modifiers:\n- UpperCase: 0.05\n- Tags: 0.1\n  custom_detok_src: null\n"
                                     "  spm_vocab_src: x.spm\n  augment: 0.4\n- [Merge: 0.01]\n");
  EXPECT_NE(text.find("upper_case = 0.05\ntags = { rate = 0.1, augment = 0.4 }\nmerge = 0.01\n"), text.npos) << text;
}

TEST_F(OpusTrainerTest, WhatCannotBeDoneIsRefused) {
  std::string const text = example;
  expect_data_error([&] { converted(text + "modifiers:\n- Tags: 1\n  custom_detok_trg: zh\n"); },
                    "custom_detok_trg of Tags: here text is not tokenized by Moses");
  expect_data_error([&] { converted(text + "modifiers:\n- Retokenize: 1\n"); }, "no modifier like Retokenize here");
  expect_data_error([&] { converted("seed: 1\n"); }, "there is no key datasets");
  expect_data_error([&] { converted(text + "seed: 2\n"); }, "duplicate key");
  expect_data_error([&] { converted("datasets: {a: x}\nstages: [s]\ns: [b 1, until a 1]\nseed: 1\n"); },
                    "\"b 1\": no dataset has the name b; did you mean a?");
  expect_data_error([&] { converted("datasets: {clean: x}\nstages: [s]\ns: [clean 1, until claen 2]\nseed: 1\n"); },
                    "\"until claen 2\": no dataset has the name claen; did you mean clean?");
  auto const stage = [&](std::string const& mix, std::string const& stages = "[s]") {
    return [&, mix, stages] {
      converted("datasets: {a: x}\nstages: " + stages + "\ns: [" + mix + "]\nt: [a 1, until a 1]\nseed: 1\n");
    };
  };
  expect_data_error(stage("a x, until a 1"), "\"a x\": expected a weight");
  expect_data_error(stage("a 1, until a 1.5"), "expected a whole number of epochs, or inf");
  expect_data_error(stage("a 1"), "has no \"until NAME EPOCHS\"");
  expect_data_error(stage("a 1, until a inf", "[s, t]"), "the stages after it would never start");
  expect_data_error(stage("a 1, until a 1, a 2"), "stands after the stage's end");
  expect_data_error([&] { converted("datasets: {a: x}\nstages: s\nseed: 1\n"); }, "not of the type");
}

}  // namespace
}  // namespace heddle
