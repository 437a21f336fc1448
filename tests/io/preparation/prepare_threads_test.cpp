#include <zlib.h>

#include <heddle/core/base/processors.hpp>
#include <heddle/io/dataset/dataset.hpp>
#include <map>

#include "prepare_fixture.hpp"

namespace heddle {
namespace {

/// Prepares texts of many blocks on several numbers of threads.
class PrepareThreadsTest : public PrepareTest {
 protected:
  static constexpr int pairs = 3000;

  PrepareThreadsTest() {
    std::string source;
    std::string target;
    for (int pair = 0; pair < pairs; ++pair) {
      source += english(pair) + "\n";
      target += german(pair) + "\n";
    }
    options_.source = {inputs_.write("a.en", source)};
    options_.target = {inputs_.write("a.de", target)};
    options_.max_length = 40;
    options_.character_coverage = 0.9995;
    options_.invalid_utf8 = InvalidUtf8::skip;
  }

  /// Numbers, of which some repeat, and lines that are empty, too long, not UTF-8 or have what is worth a look.
  static std::string english(int pair) {
    return pair % 97 == 5    ? ""
           : pair % 101 == 7 ? "\xFF"
           : pair % 89 == 3  ? english_number(pair) + " ☃"
                             : english_number(pair * 7919 % 2000);
  }
  static std::string german(int pair) {
    std::string const number = german_number(pair * 7919 % 2000);
    return pair % 103 == 11 ? number + std::string(static_cast<std::size_t>(pair), '-') : number;
  }

  /// The files that are written on this number of threads.
  std::map<std::string, std::string> files_on(int threads) {
    options_.threads = threads;
    options_.directory = outputs_ / std::to_string(threads);
    report_ = run();
    std::map<std::string, std::string> files;
    for (std::string const& name : names_in(options_.directory)) {
      files[name] = read_whole(options_.directory / name);
    }
    std::filesystem::remove_all(options_.directory);
    return files;
  }
  void expect_equal_files() {
    auto const expected = files_on(1);
    PreparedText const train = *report_.train;
    for (int const threads : {2, 5, 0}) {
      EXPECT_TRUE(files_on(threads) == expected) << threads << " threads write other files";
      EXPECT_EQ(report_.train->samples, train.samples);
      EXPECT_EQ(report_.train->frequent_unknown, train.frequent_unknown);
      EXPECT_EQ(report_.train->max_tokens, train.max_tokens);
      EXPECT_EQ(report_.train->repeats, train.repeats);
    }
  }
  std::string message_on(int threads) {
    options_.threads = threads;
    options_.directory = outputs_ / "failed";
    return failure();
  }

  PrepareReport report_;
};

TEST_F(PrepareThreadsTest, WriteTheSameFiles) {
  options_.samples_per_file = 700;
  expect_equal_files();
  EXPECT_GT(report_.train->repeats, 100);
  EXPECT_GT(report_.train->empty, 10);
  EXPECT_GT(report_.train->too_long, 10);
  EXPECT_GT(report_.train->invalid, 10);
  options_.separate_vocabularies = true;
  options_.vocabulary_size = 60;
  expect_equal_files();
}

TEST_F(PrepareThreadsTest, WriteTheSameFields) {
  std::string links;
  std::string weights;
  std::string of_words;
  for (int pair = 0; pair < pairs; ++pair) {
    links += pair % 97 == 5 ? "\n" : "0-0\n";
    weights += fmt::format("{}\n", pair % 7);
    of_words += fmt::format("{}\n", pair % 5);
  }
  options_.alignments = {inputs_.write("links", links)};
  options_.sentence_weights = {inputs_.write("weights", weights)};
  options_.word_weights = {inputs_.write("words", of_words)};
  expect_equal_files();
  Dataset const dataset = [&] {
    options_.directory = outputs_ / "fields";
    run();
    return Dataset::open(options_.directory / "train.h5");
  }();
  EXPECT_EQ(dataset.fields(), (SampleFields{SampleField::alignment, SampleField::weights}));
}

TEST_F(PrepareThreadsTest, WriteTheSameLines) {
  PrepareOptions const pairs = options_;
  options_ = {};
  options_.text = {pairs.source.front(), pairs.target.front()};
  options_.valid_text = {inputs_ / "valid.en"};
  options_.vocabulary_size = 90;
  options_.invalid_utf8 = InvalidUtf8::replace;
  expect_equal_files();
}

TEST_F(PrepareThreadsTest, WriteTheSameFilesOfGzipAndColumns) {
  options_.invalid_utf8 = InvalidUtf8::replace;
  auto const expected = files_on(1);
  auto const gzip = [&](std::string const& name, std::string const& text) {
    auto const path = inputs_ / name;
    gzFile const file = gzopen(path.c_str(), "wb");
    gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
    gzclose(file);
    return path;
  };
  options_.source = {gzip("a.en.gz", read_whole(options_.source.front()))};
  EXPECT_TRUE(files_on(3) == expected);
  std::string columns;
  for (int pair = 0; pair < pairs; ++pair) {
    columns += english(pair) + "\t" + german(pair) + "\n";
  }
  options_.source.clear();
  options_.target.clear();
  options_.tsv = {gzip("a.tsv.gz", columns)};
  EXPECT_TRUE(files_on(3) == expected);
}

// The vocabulary is that of the files' first form, so that errors are found while blocks are encoded.
TEST_F(PrepareThreadsTest, ReportTheFirstErrorOfTheText) {
  options_.directory = outputs_ / "first";
  run();
  std::string const model = read_whole(options_.directory / "vocab.model");
  std::filesystem::remove_all(options_.directory);
  options_.source_model = inputs_.write("vocab.model", model);
  options_.invalid_utf8 = InvalidUtf8::replace;
  std::string weights;
  for (int pair = 0; pair < pairs; ++pair) {
    weights += pair == 1234 || pair == 2999 ? "none\n" : "1\n";
  }
  options_.sentence_weights = {inputs_.write("weights", weights)};
  for (int const threads : {1, 2, 5}) {
    EXPECT_THAT(message_on(threads), HasSubstr("line 1235: \"none\" is not a weight"));
  }
  // An error of reading comes after those of the lines before it.
  options_.sentence_weights = {inputs_.write("weights", weights.substr(0, 2 * 1300))};
  for (int const threads : {1, 2, 5}) {
    EXPECT_THAT(message_on(threads), HasSubstr("line 1235: \"none\" is not a weight"));
  }
  options_.sentence_weights = {inputs_.write("weights", weights.substr(0, 2 * 1200))};
  for (int const threads : {1, 2, 5}) {
    EXPECT_THAT(message_on(threads), HasSubstr("weights ends after line 1200, before the text does"));
  }
}

TEST(Processors, AreThoseOfTheAffinity) {
  std::string const processors = processors_of_thread();
  EXPECT_GE(usable_processors(), 1);
  EXPECT_LE(usable_processors(), std::ranges::count(processors, ' '));
}

}  // namespace
}  // namespace heddle
