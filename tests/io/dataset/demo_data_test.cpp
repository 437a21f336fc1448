#include <heddle/io/dataset/demo_data.hpp>
#include <heddle/io/text/text.hpp>

#include "read_lines.hpp"
#include "test.hpp"

namespace heddle {
namespace {

TEST(DemoNumbers, AreCorrectEnglishAndGerman) {
  std::map<int64_t, std::pair<char const*, char const*>> const expected = {
      {0, {"zero", "null"}},
      {1, {"one", "eins"}},
      {7, {"seven", "sieben"}},
      {12, {"twelve", "zwölf"}},
      {16, {"sixteen", "sechzehn"}},
      {17, {"seventeen", "siebzehn"}},
      {20, {"twenty", "zwanzig"}},
      {21, {"twenty-one", "einundzwanzig"}},
      {30, {"thirty", "dreißig"}},
      {66, {"sixty-six", "sechsundsechzig"}},
      {77, {"seventy-seven", "siebenundsiebzig"}},
      {100, {"one hundred", "einhundert"}},
      {101, {"one hundred and one", "einhunderteins"}},
      {111, {"one hundred and eleven", "einhundertelf"}},
      {1000, {"one thousand", "eintausend"}},
      {1001, {"one thousand and one", "eintausendeins"}},
      {1100, {"one thousand one hundred", "eintausendeinhundert"}},
      {21021, {"twenty-one thousand and twenty-one", "einundzwanzigtausendeinundzwanzig"}},
      {100000, {"one hundred thousand", "einhunderttausend"}},
      {101001, {"one hundred and one thousand and one", "einhunderteintausendeins"}},
      {312005, {"three hundred and twelve thousand and five", "dreihundertzwölftausendfünf"}},
      {999999,
       {"nine hundred and ninety-nine thousand nine hundred and ninety-nine",
        "neunhundertneunundneunzigtausendneunhundertneunundneunzig"}},
  };
  for (auto const& [number, words] : expected) {
    EXPECT_EQ(english_number(number), words.first);
    EXPECT_EQ(german_number(number), words.second);
  }
  EXPECT_THROW(english_number(1'000'000), UsageError);
  EXPECT_THROW(german_number(-1), UsageError);
}

TEST(DemoNumbers, AreDifferentWordsForDifferentNumbers) {
  std::set<std::string> english;
  std::set<std::string> german;
  for (int64_t number = 0; number <= largest_demo_number; number += number < 10'000 ? 1 : 97) {
    EXPECT_TRUE(english.insert(english_number(number)).second) << number;
    EXPECT_TRUE(german.insert(german_number(number)).second) << number;
  }
}

DemoDataOptions small_demo(std::filesystem::path const& directory) {
  DemoDataOptions options;
  options.directory = directory;
  options.train = 3000;
  options.valid = 50;
  options.test = 100;
  return options;
}

TEST(DemoData, PartsAreDisjointAndParallelAndCoverShortNumbers) {
  TemporaryDirectory const directory;
  write_demo_data(small_demo(directory / "new" / "demo"));
  std::map<std::string, std::string> german_of;
  for (int64_t number = 0; number <= largest_demo_number; ++number) {
    german_of.emplace(english_number(number), german_number(number));
  }
  std::set<std::string> seen;
  std::map<std::string, std::size_t> const sizes = {{"train", 3000}, {"valid", 50}, {"test", 100}};
  for (auto const& [part, size] : sizes) {
    auto const english = read_lines(directory / "new" / "demo" / (part + ".en"));
    auto const german = read_lines(directory / "new" / "demo" / (part + ".de"));
    ASSERT_EQ(english.size(), size);
    ASSERT_EQ(german.size(), size);
    for (std::size_t i = 0; i < size; ++i) {
      EXPECT_EQ(german_of.at(english[i]), german[i]);
      EXPECT_TRUE(seen.insert(english[i]).second) << english[i] << " is a duplicate";
    }
  }
  auto const train = read_lines(directory / "new" / "demo" / "train.en");
  std::set<std::string> const train_set(train.begin(), train.end());
  for (int64_t number = 0; number < 100; ++number) {
    EXPECT_TRUE(train_set.contains(english_number(number))) << number;
  }
}

TEST(DemoData, IsTheSameForTheSameSeed) {
  TemporaryDirectory const directory;
  auto options = small_demo(directory / "a");
  write_demo_data(options);
  options.directory = directory / "b";
  write_demo_data(options);
  options.directory = directory / "c";
  options.seed = 2;
  write_demo_data(options);
  EXPECT_EQ(read_whole(directory / "a/train.de"), read_whole(directory / "b/train.de"));
  EXPECT_NE(read_whole(directory / "a/train.de"), read_whole(directory / "c/train.de"));
}

TEST(DemoData, ReplacesNothingUnlessAskedTo) {
  TemporaryDirectory const directory;
  directory.write("test.de", "mine\n");
  auto options = small_demo(directory.path());
  expect_usage_error([&] { write_demo_data(options); }, "--overwrite");
  EXPECT_THAT(directory.names(), ElementsAre("test.de"));
  EXPECT_EQ(read_whole(directory / "test.de"), "mine\n");
  options.overwrite = true;
  write_demo_data(options);
  EXPECT_EQ(directory.names().size(), 6U);
  options.train = 10;
  EXPECT_THROW(write_demo_data(options), UsageError);
}

}  // namespace
}  // namespace heddle
