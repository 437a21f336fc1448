#include <heddle/io/pairs/modifiers.hpp>
#include <heddle/io/text/text.hpp>

#include "dataset_fixture.hpp"

namespace heddle {
namespace {

class ModifiersTest : public testing::Test {
 protected:
  /// The settings of [data.modifiers] with these lines.
  static Settings settings(std::string const& lines) {
    return parse_config("[data.modifiers]\n" + lines, "run.toml").data.modifiers;
  }
  static Modifiers modifiers(std::string const& lines, SampleFields fields = {SampleField::alignment}) {
    return {settings(lines), {.name = "train.tsv", .fields = std::move(fields), .vocabulary = joint()}};
  }
  static Vocabulary const& joint() {
    static Vocabulary const vocabulary{separate_vocabulary().source, separate_vocabulary().source};
    return vocabulary;
  }
  static std::vector<NumberedPair> pairs(std::int64_t count, TextPair const& pair) {
    std::vector<NumberedPair> numbered;
    for (std::int64_t index = 0; index < count; ++index) {
      numbered.push_back({index, pair});
    }
    return numbered;
  }
  static std::vector<NumberedPair> changed(std::string const& lines, std::vector<NumberedPair> numbered,
                                           std::int64_t epoch = 0) {
    modifiers(lines).apply(numbered, joint(), 7, epoch);
    return numbered;
  }
  static TextPair changed(std::string const& lines, TextPair const& pair) {
    return changed(lines, pairs(1, pair)).front().pair;
  }
  static void expect_refused(std::string const& lines, Texts const& message, SampleFields const& fields = {}) {
    expect_config_error([&] { modifiers(lines, fields); }, message);
  }

  TextPair const pair_{.source = "One small cat sleeps here .",
                       .target = "Eine kleine Katze schläft hier .",
                       .links = {{0, 0}, {1, 1}, {2, 2}, {3, 3}, {4, 4}, {5, 5}}};
};

TEST_F(ModifiersTest, RatesAreSharesOfSamples) {
  constexpr std::int64_t count = 20000;
  for (auto const& [name, rate] : {std::pair("upper_case", 0.05),
                                   {"title_case", 0.1},
                                   {"remove_end_punctuation", 0.3},
                                   {"prefix", 0.02},
                                   {"swap", 0.5}}) {
    std::vector<NumberedPair> const result = changed(fmt::format("{} = {}", name, rate), pairs(count, pair_));
    auto const share = static_cast<double>(std::ranges::count_if(
                           result, [&](NumberedPair const& each) { return each.pair.source != pair_.source; })) /
                       count;
    EXPECT_NEAR(share, rate, 4 * std::sqrt(rate * (1 - rate) / count)) << name;
  }
}

TEST_F(ModifiersTest, ModifiersChooseSamplesIndependently) {
  constexpr std::int64_t count = 10000;
  auto const result = changed("upper_case = 0.5\nprefix = 0.5\n", pairs(count, pair_));
  auto const both = static_cast<double>(std::ranges::count_if(result,
                                                              [](NumberedPair const& each) {
                                                                return each.pair.source.starts_with("__start__") &&
                                                                       each.pair.source.ends_with("HERE .");
                                                              })) /
                    count;
  EXPECT_NEAR(both, 0.25, 4 * std::sqrt(0.25 * 0.75 / count));
}

TEST_F(ModifiersTest, ASamplesChangesAreItsOwn) {
  std::string const all = "upper_case = 0.2\ntypos = 0.5\nprefix = 0.2\ntags = 0.2\n";
  auto const whole = changed(all, pairs(100, pair_), 3);
  for (std::int64_t index : {0, 17, 99}) {
    auto const alone = changed(all, {{index, pair_}}, 3);
    TextPair const& expected = whole[static_cast<std::size_t>(index)].pair;
    EXPECT_EQ(alone.front().pair.source, expected.source);
    EXPECT_EQ(alone.front().pair.links, expected.links);
  }
  auto const other_epoch = changed(all, pairs(100, pair_), 4);
  EXPECT_FALSE(std::ranges::equal(
      whole, other_epoch, {}, [](NumberedPair const& each) { return each.pair.source; },
      [](NumberedPair const& each) { return each.pair.source; }));
}

TEST_F(ModifiersTest, Case) {
  TextPair const upper = changed("upper_case = 1", TextPair{.source = "straße  one", .target = "ﬁn élan"});
  EXPECT_EQ(upper.source, "STRASSE  ONE");
  EXPECT_EQ(upper.target, "FIN ÉLAN");
  TextPair const title = changed("title_case = 1", TextPair{.source = "the  éLan of", .target = "ßa b"});
  EXPECT_EQ(title.source, "The ÉLan Of");
  EXPECT_EQ(title.target, "SSa B");
}

TEST_F(ModifiersTest, EndPunctuationGoesWithItsLinks) {
  TextPair const changed = ModifiersTest::changed("remove_end_punctuation = 1", pair_);
  EXPECT_EQ(changed.source, "One small cat sleeps here");
  EXPECT_EQ(changed.target, "Eine kleine Katze schläft hier");
  EXPECT_EQ(changed.links.size(), 5U);
  EXPECT_EQ(ModifiersTest::changed("remove_end_punctuation = 1", TextPair{.source = "a.", .target = "b"}).source, "a.");
  EXPECT_EQ(ModifiersTest::changed("remove_end_punctuation = 1", TextPair{.source = "?!", .target = "b."}).source,
            "?!");
}

TEST_F(ModifiersTest, EachTypoIsOneOperation) {
  auto const typo = [&](std::string const& kind, std::string const& source) {
    std::set<std::string> found;
    for (NumberedPair const& each : changed(fmt::format("typos = {{ rate = 1, {} = 1 }}", kind),
                                            pairs(300, TextPair{.source = source, .target = "x"}))) {
      found.insert(each.pair.source);
    }
    return found;
  };
  EXPECT_THAT(typo("char_swap", "Ab c"), ElementsAre("Ba c"));
  EXPECT_THAT(typo("missing_char", "ab!"), ElementsAre("a!", "b!"));
  EXPECT_THAT(typo("missing_char", "a!"), ElementsAre("a!"));
  EXPECT_THAT(typo("skipped_space", "a b c"), ElementsAre("a bc", "ab c"));
  EXPECT_THAT(typo("random_space", "ab"), ElementsAre(" ab", "a b"));
  EXPECT_THAT(typo("repeated_char", "a.b"), ElementsAre("a.bb", "aa.b"));
  EXPECT_THAT(typo("unichar", "aabcc"), ElementsAre("aabc", "abcc"));
  EXPECT_THAT(typo("unichar", "abc"), ElementsAre("abc"));
  EXPECT_THAT(typo("nearby_char", "A"), ElementsAre("Q", "S", "W", "Z"));
  EXPECT_THAT(typo("extra_char", "p"), ElementsAre("lp", "op"));
  EXPECT_THAT(typo("nearby_char", "0"), ElementsAre("1", "2", "9"));
  EXPECT_THAT(typo("similar_char", "mx"), ElementsAre("mx", "nx"));
}

TEST_F(ModifiersTest, TyposMoveLinks) {
  TextPair const pair{.source = "ab c", .target = "x y", .links = {{0, 0}, {1, 1}}};
  EXPECT_THAT(changed("typos = { rate = 1, skipped_space = 1 }", pair).links,
              ElementsAre(TokenLink{0, 0}, TokenLink{0, 1}));
  for (NumberedPair const& each : changed("typos = { rate = 1, random_space = 1 }", pairs(50, pair))) {
    bool const divided = count_words(each.pair.source) == 3;
    EXPECT_EQ(each.pair.links, divided ? (std::vector<TokenLink>{{0, 0}, {1, 0}, {2, 1}}) : pair.links);
  }
}

TEST_F(ModifiersTest, TagsAreBesideWordsWithOneTranslation) {
  TextPair const tagged =
      changed("tags = 1",
              TextPair{.source = "I like pie", .target = "Me gustan pie", .links = {{0, 0}, {1, 0}, {1, 1}, {2, 2}}});
  EXPECT_EQ(tagged.source, "I like pie");  // no word has one translation, or it is the same
  TextPair const one =
      changed("tags = 1", TextPair{.source = "I like pie", .target = "gustan Pastel", .links = {{1, 0}, {2, 1}}});
  EXPECT_EQ(one.source, "I __source__ like __target__ gustan __done__ __source__ pie __target__ Pastel __done__");
  EXPECT_EQ(one.target, "gustan Pastel");
  EXPECT_THAT(one.links, ElementsAre(TokenLink{2, 0}, TokenLink{4, 0}, TokenLink{7, 1}, TokenLink{9, 1}));
  TextPair const replaced = changed("tags = { rate = 1, replace = 1, template = \"<{src}|{trg}>\" }", pair_);
  expect_contains(replaced.source, {"<One|"});
  expect_lacks(replaced.target, {"Eine", "Katze"});
  TextPair const augmented = changed("tags = { rate = 1, augment = 1 }", pair_);
  expect_contains(augmented.target, {"Eine ", " kleine "});
  EXPECT_EQ(count_words(augmented.source), count_words(augmented.target));
}

TEST_F(ModifiersTest, APrefixIsAPhraseOfTheTarget) {
  TextPair const changed =
      ModifiersTest::changed("prefix = { rate = 1, min_words = 2, max_words = 2, template = \"<{trg}> \" }", pair_);
  std::string const phrase = changed.source.substr(1, changed.source.find('>') - 1);
  EXPECT_EQ(count_words(phrase), 2);
  expect_contains(pair_.target, phrase);
  EXPECT_THAT(changed.source, EndsWith("> " + pair_.source));
  EXPECT_EQ(changed.links.front(), (TokenLink{2, 0}));
  EXPECT_EQ(ModifiersTest::changed("prefix = 1", TextPair{.source = "a", .target = "b"}).source, "a");
}

TEST_F(ModifiersTest, NoiseIsAddedBesideThePairs) {
  constexpr std::int64_t count = 5000;
  auto const result = changed("noise = 0.1", pairs(count, pair_));
  EXPECT_NEAR(static_cast<double>(std::ssize(result) - count) / count, 0.1, 0.02);
  EXPECT_EQ(result[0].pair.source, pair_.source);
  TextPair const& noise = result.back().pair;
  EXPECT_GT(result.back().index, added_samples);
  EXPECT_EQ(noise.source, noise.target);
  EXPECT_EQ(std::ssize(noise.links), count_words(noise.source));
  for (std::size_t at = count; at < result.size(); ++at) {
    EXPECT_EQ(find_invalid_utf8(result[at].pair.source), std::string::npos);
    EXPECT_LE(count_words(result[at].pair.source), 6);
  }
}

TEST_F(ModifiersTest, MergedPairsAreOneSample) {
  std::vector<NumberedPair> five = pairs(5, TextPair{.source = "a b", .target = "x", .links = {{1, 0}}});
  five[4].index = 4;
  five[3].pair.source.clear();
  auto const merged = changed("merge = { rate = 1, min_lines = 3, max_lines = 3 }", five);
  ASSERT_EQ(merged.size(), 3U);
  EXPECT_EQ(merged[0].pair.source, "a b a b a b");
  EXPECT_EQ(merged[0].pair.target, "x x x");
  EXPECT_THAT(merged[0].pair.links, ElementsAre(TokenLink{1, 0}, TokenLink{3, 1}, TokenLink{5, 2}));
  EXPECT_TRUE(merged[1].pair.empty());  // it ends a document
  EXPECT_EQ(merged[2].pair.source, "a b");
}

TEST_F(ModifiersTest, ContextIsOfTheSameDocument) {
  std::vector<NumberedPair> document = pairs(4, TextPair{.source = "a", .target = "x", .links = {{0, 0}}});
  document[1].pair = TextPair{};
  document[3].pair.source = "b";
  auto const result = changed("context = { rate = 1, sentences = 1, separator = \" | \" }", document);
  EXPECT_EQ(result[0].pair.source, "a");
  EXPECT_EQ(result[2].pair.source, "a");
  EXPECT_EQ(result[3].pair.source, "a | b");
  EXPECT_EQ(result[3].pair.target, "x | x");
  EXPECT_THAT(result[3].pair.links, ElementsAre(TokenLink{0, 0}, TokenLink{2, 2}));
  auto const sources = changed("context = { rate = 1, sentences = 1, side = \"source\" }", document);
  EXPECT_EQ(sources[3].pair.source, "a b");
  EXPECT_EQ(sources[3].pair.target, "x");
  EXPECT_THAT(sources[3].pair.links, ElementsAre(TokenLink{1, 0}));
}

TEST_F(ModifiersTest, SwappedPairsMayHaveATag) {
  TextPair const swapped =
      changed("swap = { rate = 1, tag = \"<en>\" }", TextPair{.source = "a b", .target = "x", .links = {{1, 0}}});
  EXPECT_EQ(swapped.source, "x");
  EXPECT_EQ(swapped.tag, "<en>");
  EXPECT_THAT(swapped.links, ElementsAre(TokenLink{0, 1}));
}

TEST_F(ModifiersTest, RefusesWhatCannotBeDone) {
  expect_refused("typo = 0.1", {"run.toml:2:1: data.modifiers.typo: there is no modifier typo; did you mean typos?"});
  expect_refused("typos = 1.5", {"run.toml:2:1: data.modifiers.typos is the number 1.5; expected a number, 0 to 1"});
  expect_refused("typos = { rate = 0.1, char_swp = 0.1 }",
                 {"run.toml:2", "data.modifiers.typos.char_swp", "char_swap"});
  expect_refused("typos = { char_swap = 0.1 }", {"data.modifiers.typos.char_swap: typos has options and no rate"});
  expect_refused("typos = \"often\"", {"run.toml:2:1: data.modifiers.typos is the string \"often\""});
  expect_refused("tags = 0.1", {"data.modifiers.tags: tags needs alignments of words, and train.tsv has none"});
  expect_refused("merge = 0.1", {"merge changes the words of targets, and train.tsv has weights"},
                 {SampleField::weights});
  EXPECT_TRUE(modifiers("tags = 0", {}).empty());
  expect_config_error(
      [&] {
        Modifiers(settings("swap = 0.5"), {.name = "train.tsv", .fields = {}, .vocabulary = separate_vocabulary()});
      },
      {"swap needs one vocabulary for source and target"});
}

TEST_F(ModifiersTest, ACorpusHasThoseOfAllAndItsOwn) {
  DataConfig const data = parse_config(
                              "[data.modifiers]\nupper_case = 0.1\ntypos = 0.2\n"
                              "[data.corpus.\"news\"]\ntrain = \"n.h5\"\n[data.corpus.\"news\".modifiers]\n"
                              "typos = { rate = 0.5 }\n[data.corpus.web]\ntrain = \"w.tsv\"\n",
                              "run.toml")
                              .data;
  auto const corpora = data.training();
  ASSERT_EQ(corpora.size(), 2U);
  EXPECT_TRUE(corpora[0].modifiers.contains("typos.rate"));
  EXPECT_FALSE(corpora[0].modifiers.contains("typos"));
  EXPECT_TRUE(corpora[0].modifiers.contains("upper_case"));
  EXPECT_TRUE(corpora[1].modifiers.contains("typos"));
  Config config;
  config.data = data;
  EXPECT_EQ(parse_config(to_toml(config), "again").data, data);
}

}  // namespace
}  // namespace heddle
