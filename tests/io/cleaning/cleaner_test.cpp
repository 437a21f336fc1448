#include <heddle/core/base/random.hpp>
#include <heddle/io/text/text_writer.hpp>

#include "cleaning_fixture.hpp"
#include "read_lines.hpp"

namespace heddle {
namespace {

TEST(Cleaner, RefusesRulesWithFileLineAndKey) {
  auto const refused = [](std::string_view rules, Texts const& texts, bool pairs = true) {
    expect_config_error([&] { Cleaner(rules, "rules.toml", pairs); }, texts);
  };
  refused("", {"rules.toml names no rule", "--write-rules"});
  refused("[length", {"rules.toml:1:", "not valid TOML"});
  refused("min_words = 3", {"rules.toml:1:1: min_words", "outside of the tables"});
  refused("[lenght]\nmin_words = 3", {"rules.toml:1:2: there is no rule lenght; did you mean length?"});
  refused("[length]\nmin_word = 3", {"rules.toml:2:1: there is no option length.min_word; did you mean min_words?"});
  refused("[length]\nheads = 3", {"rules.toml:2:1: there is no option length.heads; expected one of: min_words"});
  refused("[mojibake]\nmin = 3", {"rules.toml:2:1: mojibake.min: the rule has no options"});
  refused("[length]\nmin_words = \"3\"", {"rules.toml:2:1: length.min_words is the string \"3\"; expected an integer"});
  refused("[length]\nmin_words = -1", {"length.min_words is the integer -1; expected an integer, at least 0"});
  refused("[length]\n[length.source]\nmin_words = 1", {"length.source is a table; expected a boolean, a number"});
  refused("[length]\nmin_words = 5\nmax_words = 3",
          {"rules.toml:3:1: length.max_words: min_words = 5 is above max_words = 3"});
  refused("[length]\nmin_words = 500", {"rules.toml:2:1: length.min_words: min_words = 500 is above max_words = 200"});
  refused("[ratio]\nmax = 0.5", {"ratio.max is the number 0.5; expected a number, at least 1"});
  refused("[ratio]", {"rules.toml:1:2: [ratio] compares the two sides of pairs"}, false);
  refused("[script]", {"[script] needs the script of a side"});
  refused("[script]\nsource = \"Latinn\"", {"rules.toml:2:1: script.source", "did you mean \"Latin\"?"});
  refused("[duplicates]\nby = \"both\"", {"\"pair\" or \"source\" or \"target\""});
  refused("[duplicates]\nby = \"source\"", {"duplicates.by = \"source\": the text has one side"}, false);
  refused("[overlap]", {"[overlap] needs the texts to compare with"});
  refused("[scores]\nmin = 1", {"[scores] needs file, or forward and backward"});
  refused("[scores]\nforward = \"a\"\nmin = 1", {"[scores] needs file, or forward and backward"});
  refused("[scores]\nfile = \"a\"", {"[scores] needs one of min"});
  refused("[scores]\nfile = \"a\"\nmin = 0\nkeep = 0.5", {"[scores] needs one of min"});
  refused("[scores]\nfile = \"a\"\nkeep = 1.5", {"scores.keep is the number 1.5; expected a number, 0 to 1"});
  expect_data_error([] { Cleaner("[overlap]\nsource = \"no-such\"", "rules.toml", true); },
                    {"no-such: does not exist"});
}

TEST(Cleaner, ReadsTheRulesThatItWrites) {
  for (bool const pairs : {true, false}) {
    Cleaner cleaner(default_rules(pairs), "default", pairs);
    std::size_t const rules = cleaner.report().rules.size();
    EXPECT_EQ(rules, pairs ? 12 : 7);
  }
  // With every key given as its default is shown, the rules are the same ones.
  std::string given;
  for (std::string line : lines_of(default_rules(true))) {
    bool const key = line.starts_with("# ") && line.find(" = ") != line.npos && line.find("#", 2) != line.npos;
    given += (key ? line.substr(2) : line) + '\n';
    if (line.starts_with("# [")) {
      break;  // of rules that are not used by default some need a key
    }
  }
  Cleaner(given, "given", true);
}

TEST(Cleaner, EndsWithTheRuleThatDropsEverything) {
  Cleaner cleaner("[control]\n[length]\nmin_words = 3\n", "rules.toml", true);
  EXPECT_NE(decide(cleaner, {"two words", "zwei"}), "");
  EXPECT_NE(decide(cleaner, {"a b c", "zwei"}), "");
  EXPECT_NE(decide(cleaner, {"a b c", "a b \x02"}), "");
  expect_data_error([&] { cleaner.finish(); },
                    {"rules.toml:2:2: [length] drops 2 of 3 pairs, and nothing is left; line 1: the "
                     "source has 2 words; min_words = 3"});
}

TEST(Duplicates, AreComparedByPairBySideAndFolded) {
  std::vector<std::vector<std::string_view>> const lines{
      {"one", "eins"}, {"One!", "Eins!"}, {"one", "Eins"}, {"two", "eins"}, {"one", "eins"}, {"?", "!"}, {"!", "?"}};
  auto const keeps = [&](std::string const& options) {
    Cleaner cleaner("[duplicates]\n" + options, "rules.toml", true);
    return kept(cleaner, lines);
  };
  EXPECT_THAT(keeps(""), ElementsAre(1, 2, 3, 4, 6, 7));
  EXPECT_THAT(keeps("by = \"source\""), ElementsAre(1, 2, 4, 6, 7));
  EXPECT_THAT(keeps("by = \"target\""), ElementsAre(1, 2, 3, 6, 7));
  EXPECT_THAT(keeps("folded = true"), ElementsAre(1, 4, 6, 7));
  EXPECT_THAT(keeps("folded = true\nby = \"target\""), ElementsAre(1, 6, 7));
  Cleaner both("[length]\nmin_words = 2\n[duplicates]", "rules.toml", true);
  EXPECT_THAT(kept(both, {{"a", "b c"}, {"a b", "b c"}, {"a", "b c"}, {"a b", "b c"}}), ElementsAre(2));
}

TEST(Duplicates, StayKnownWhenThereAreMany) {
  Cleaner cleaner("[duplicates]", "rules.toml", false);
  for (int time = 0; time < 2; ++time) {
    for (int line = 0; line < 20'000; ++line) {
      EXPECT_EQ(decide(cleaner, {std::to_string(line)}).empty(), time == 0);
    }
  }
}

/// A text of words that depend on the seed, with some of them changed.
std::string random_text(std::uint64_t seed, int words, int changed) {
  std::string text;
  for (int word = 0; word < words; ++word) {
    std::uint64_t const bits = mix_bits(seed * 1000 + static_cast<std::uint64_t>(word + (word < changed ? 500 : 0)));
    text += fmt::format("w{:x} ", bits % 0xFFFFF);
  }
  return text;
}

TEST(NearDuplicates, AreDroppedByTheSimilarityOfTheirShingles) {
  Cleaner cleaner("[near_duplicates]\nsimilarity = 0.8", "rules.toml", false);
  int near = 0;
  int far = 0;
  int other = 0;
  constexpr int texts = 200;
  for (std::uint64_t seed = 1; seed <= texts; ++seed) {
    EXPECT_EQ(decide(cleaner, {random_text(seed, 60, 0)}), "");
    near += decide(cleaner, {random_text(seed, 60, 2)}).empty() ? 0 : 1;  // about 0.93 of their shingles are the same
  }
  for (std::uint64_t seed = 1; seed <= texts; ++seed) {
    far += decide(cleaner, {random_text(seed, 60, 25)}).empty() ? 0 : 1;  // about 0.4
    other += decide(cleaner, {random_text(seed + 1000, 60, 0)}).empty() ? 0 : 1;
  }
  EXPECT_GE(near, texts * 95 / 100);
  EXPECT_LE(far, texts * 3 / 100);
  EXPECT_EQ(other, 0);
}

TEST(NearDuplicates, LeavesShortLinesAlone) {
  Cleaner cleaner("[near_duplicates]", "rules.toml", true);
  EXPECT_THAT(kept(cleaner, {{"Short.", "Kurz."}, {"short", "kurz"}}), ElementsAre(1, 2));
}

TEST(Overlap, FindsLinesOfTestTexts) {
  TemporaryDirectory const files;
  fs::path const source = files.write("test.en", "The first test sentence.\nShort one\n");
  fs::path const tsv = files.write("test.tsv", "another test sentence here\tnoch ein Satz zum Testen\n");
  std::string const rules = fmt::format("[overlap]\nsource = \"{}\"\ntsv = [\"{}\"]\n", source.string(), tsv.string());
  EXPECT_EQ(decide(rules, {"the first TEST sentence", "x"}),
            "overlap: the source is a line of the texts to compare with");
  EXPECT_EQ(decide(rules, {"x", "Noch ein Satz – zum Testen!"}),
            "overlap: the target is a line of the texts to compare with");
  EXPECT_EQ(decide(rules, {"noch ein Satz zum Testen", "The first test sentence."}), "");
  EXPECT_EQ(decide(rules, {"short one", "x"}), "");
  EXPECT_THAT(decide(rules + "min_words = 2", {"short one", "x"}), StartsWith("overlap"));
  Cleaner held_out("[overlap]", "rules.toml", true, {{TextFile(source)}, {}});
  EXPECT_THAT(decide(held_out, {"The first test sentence.", "x"}), StartsWith("overlap"));
  std::string const text = random_text(1, 60, 0);
  std::string const near =
      fmt::format("[overlap]\nsimilarity = 0.8\nsource = \"{}\"", files.write("near.en", text + "\n").string());
  EXPECT_EQ(decide(near, {random_text(1, 60, 1), "x"}),
            "overlap: the source is nearly a line of the texts to compare with");
  EXPECT_EQ(decide(near, {random_text(2, 60, 1), "x"}), "");
}

TEST(Scores, AreBoundedByANumberOrByTheShareThatIsKept) {
  TemporaryDirectory const files;
  std::string const scores = files.write("scores", "0.5 more words\n-1e-3\nnan\n-7\n0.25\n").string();
  std::vector<std::vector<std::string_view>> const lines(5, {"a", "b"});
  auto const keeps = [&](std::string const& options) {
    Cleaner cleaner("[scores]\n" + options, "rules.toml", true);
    auto const result = kept(cleaner, lines);
    cleaner.finish();
    return result;
  };
  std::string const file = fmt::format("file = \"{}\"\n", scores);
  EXPECT_THAT(keeps(file + "min = 0.25"), ElementsAre(1, 5));
  EXPECT_THAT(keeps(file + "min = -100"), ElementsAre(1, 2, 4, 5));
  EXPECT_THAT(keeps(file + "keep = 0.2"), ElementsAre(1));
  EXPECT_THAT(keeps(file + "keep = 0.6"), ElementsAre(1, 2, 5));
  EXPECT_THAT(keeps(file + "keep = 1.0"), ElementsAre(1, 2, 4, 5));
  // As many of equal scores are kept as fill the share, evenly over the text, whatever other rules drop.
  std::string const equal = fmt::format("file = \"{}\"\n", files.write("equal", "1\n1\n2\n1\n1\n").string());
  EXPECT_THAT(keeps(equal + "keep = 0.6"), ElementsAre(2, 3, 5));
  EXPECT_THAT(keeps(equal + "keep = 0.2"), ElementsAre(3));
  EXPECT_THAT(keeps(equal + "keep = 1.0"), ElementsAre(1, 2, 3, 4, 5));
  Cleaner two("[length]\n[scores]\nkeep = 0.6\n" + equal, "rules.toml", true);
  EXPECT_THAT(kept(two, {{"", "b"}, {"a", ""}, {"a", "b"}, {"a", "b"}, {"a", "b"}}), ElementsAre(3, 5));
  // exp(-|A - B| - (A + B) / 2) of the cross-entropies, the example of Junczys-Dowmunt (2018) being A = B: exp(-A).
  std::string const forward = files.write("forward", "-1\n-1\n-3\n-0.5\n-2\n").string();
  std::string const backward = files.write("backward", "-1\n-2\n-3\n-0.5\n-2\n").string();
  std::string const both = fmt::format("forward = \"{}\"\nbackward = \"{}\"\n", forward, backward);
  EXPECT_THAT(keeps(both + fmt::format("min = {}", std::exp(-1.001))), ElementsAre(1, 4));
  EXPECT_THAT(keeps(both + fmt::format("min = {}", std::exp(-2.501))), ElementsAre(1, 2, 4, 5));
  EXPECT_THAT(keeps(both + fmt::format("min = {}", std::exp(-2.499))), ElementsAre(1, 4, 5));
  EXPECT_THAT(keeps(both + "keep = 0.4"), ElementsAre(1, 4));
}

TEST(Scores, MustBeAsManyAsLines) {
  TemporaryDirectory const files;
  auto const read = [&](std::string_view content, std::size_t lines) {
    std::string const rules = fmt::format("[scores]\nmin = 0\nfile = \"{}\"", files.write("scores", content).string());
    Cleaner cleaner(rules, "rules.toml", true);
    kept(cleaner, std::vector<std::vector<std::string_view>>(lines, {"a", "b"}));
    cleaner.finish();
  };
  expect_data_error([&] { read("1\n2\n", 3); }, {"scores ends after line 2, before the text does"});
  expect_data_error([&] { read("1\n2\n3\n", 2); }, {"scores has lines after 2, where the text ends"});
  expect_data_error([&] { read("1\nx 2\n", 2); }, {"scores: line 2: \"x\" is not a number"});
  read("1\n2\n", 2);
}

TEST(CleanText, GivesTheSameWithAnyNumberOfThreads) {
  auto const clean = [](int threads) {
    Cleaner cleaner("[length]\nmax_words = 3\n[duplicates]", "rules.toml", false);
    std::uint64_t number = 0;
    std::vector<std::string> lines;
    clean_text(
        cleaner, threads,
        [&](CleanedLine& line) {
          ++number;
          line.sides = {fmt::format("{}{}", mix_bits(number) % 5000, number % 7 == 0 ? " a b c" : "")};
          return number <= 20'000;
        },
        [&](CleanedLine const& line) { lines.push_back(line.sides[0] + (line.dropped ? line.dropped->reason : "")); });
    EXPECT_EQ(cleaner.report().lines, 20'000);
    EXPECT_GT(cleaner.report().rules[1].dropped, 5'000);
    return lines;
  };
  auto const one = clean(1);
  EXPECT_EQ(clean(2), one);
  EXPECT_EQ(clean(5), one);
}

TEST(CleanText, PassesOnWhatReadingThrows) {
  Cleaner cleaner("[length]", "rules.toml", false);
  expect_data_error(
      [&] {
        clean_text(
            cleaner, 3, [](CleanedLine&) -> bool { throw DataError("line 7 is broken"); }, [](CleanedLine const&) {});
      },
      {"line 7 is broken"});
}

TEST(TextWriter, WritesAFileThatAppearsWhenItIsComplete) {
  TemporaryDirectory const files;
  files.write("text", "older\n");
  for (std::string const name : {"text", "text.gz", "text.zst"}) {
    TextWriter writer(files / name);
    for (int line = 0; line < 200'000; ++line) {
      writer.add(std::to_string(line));
    }
    EXPECT_EQ(fs::exists(files / "text.zst"), false);
    EXPECT_EQ(name == "text" ? read_whole(files / "text") : "older\n", "older\n");
    writer.commit();
    auto const lines = read_lines(files / name);
    ASSERT_EQ(lines.size(), 200'000);
    EXPECT_EQ(lines.back(), "199999");
  }
  for (std::string const name : {"text.gz", "text.zst"}) {
    EXPECT_LT(fs::file_size(files / name), fs::file_size(files / "text") / 2);
  }
  { TextWriter writer(files / "never"); }
  EXPECT_THAT(files.names(), ElementsAre("text", "text.gz", "text.zst"));
  TextWriter empty(files / "empty.gz");
  empty.commit();
  EXPECT_GT(fs::file_size(files / "empty.gz"), 0);
}

TEST(Compression, ReturnsTheTextOfAMember) {
  for (auto const kind : {Compression::none, Compression::gzip, Compression::zstd}) {
    for (std::string const& text : {std::string(), std::string("a line\n"), std::string(300'000, 'x')}) {
      EXPECT_EQ(decompress(compress(text, kind), kind), text);
    }
    if (kind != Compression::none) {
      EXPECT_THROW(decompress("no member", kind), Error);
    }
  }
}

}  // namespace
}  // namespace heddle
