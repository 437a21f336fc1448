#include "cleaning/language/language_models.hpp"
#include "cleaning_fixture.hpp"

namespace heddle {
namespace {

/// A line that a rule drops for this reason, and one that it just keeps.
struct Case {
  std::string rules;
  std::vector<std::string_view> dropped;
  std::string reason;
  std::vector<std::string_view> kept;
};

class LineRules : public testing::TestWithParam<Case> {};

TEST_P(LineRules, DropALineForTheirReasonAndKeepItsNeighbour) {
  auto const& [rules, dropped, reason, kept] = GetParam();
  EXPECT_THAT(decide(rules, dropped), HasSubstr(reason)) << dropped.front();
  EXPECT_EQ(decide(rules, kept), "") << kept.front();
}

std::vector<Case> size_cases() {
  return {
      {"[length]\nmin_words = 3",
       {"one two", "one two three"},
       "length: the source has 2 words; min_words = 3",
       {"one two three", "one two three"}},
      {"[length]\nmax_words = 2", {"a b", "a\u00A0b\tc"}, "the target has 3 words; max_words = 2", {"a b", "a  b "}},
      {"[length]\nmin_characters = 4", {"für"}, "the text has 3 characters", {"fürs"}},
      {"[length]\nmax_characters = 3", {"fürs"}, "the text has 4 characters; max_characters = 3", {"für"}},
      {"[length]", {"", "leer"}, "the source has 0 words; min_words = 1", {"x", "x"}},
      {"[ratio]\nmax = 2\nslack = 0", {"abcd", "a"}, "4 and 1 characters", {"äöüß", "ab"}},
      {"[ratio]\nmax = 2\nslack = 2", {"abcdefg", "ab"}, "slack = 2", {"abcdef", "ab"}},
      {"[long_words]\nmax_characters = 5", {"short überall"}, "a word of 7 characters", {"short überl"}},
      {"[long_words]\nmax_characters = 5",
       {"notanaddress"},
       "a word of 12",
       {"see http://example.org/long me@example.org"}},
  };
}
INSTANTIATE_TEST_SUITE_P(Sizes, LineRules, testing::ValuesIn(size_cases()));

std::vector<Case> character_cases() {
  return {
      {"[control]", {"a\001b"}, "control: the text has U+0001", {"a\tb"}},
      {"[control]", {"a\u0085"}, "U+0085", {"\u200Eleft to right, \u00ADsoft"}},
      {"[control]", {"apple \uF8FF"}, "U+F8FF, a control, private", {"café"}},
      {"[mojibake]", {"lost \uFFFD"}, "U+FFFD", {"?"}},
      {"[mojibake]", {"fÃ¼r"}, "has \"Ã¼\"", {"für NÃO"}},
      {"[mojibake]", {"itâ€™s"}, "has \"â€™\"", {"it’s a “château”"}},
      {"[mojibake]", {"Ð¿Ñ€Ð¸"}, "read as Windows-1252", {"при"}},
      {"[mojibake]", {"10 Â°C"}, "has \"Â°\"", {"»MENÜ« und voilà\u00A0» É»"}},
      {"[characters]\nmin_letters = 0.5", {"a123", "abc1"}, "the source has 25 % letters", {"abc1", "abc1"}},
      {"[characters]\nmin_letters = 0\nmax_digits = 0.5\nmax_punctuation = 1", {"a 123 456"}, "86 % digits", {"a 1"}},
      {"[characters]\nmin_letters = 0\nmax_punctuation = 0.5", {"a — !"}, "67 % punctuation", {"ab — !"}},
      {"[repeats]\nmax_characters = 3", {"nooooo"}, "a character more than 3 times", {"nooo no o o o"}},
      {"[repeats]\nmax_words = 2", {"a b b b c"}, "a word 3 times in a row", {"a b b c b"}},
      {"[repeats]\nmax_words = 2", {"hop on hop on hop on"}, "2 words 3 times in a row", {"hop on hop on hop off"}},
      {"[script]\nsource = \"Latin\"\ntarget = \"Cyrillic\"",
       {"text", "text т"},
       "the target has 20 % letters",
       {"text", "текст v2"}},
      {"[script]\nsource = [\"Han\", \"Hira\"]\nmin_share = 1", {"漢字カナ"}, "the text has 50 %", {"漢字かな 12!"}},
  };
}
INSTANTIATE_TEST_SUITE_P(Characters, LineRules, testing::ValuesIn(character_cases()));

std::vector<Case> content_cases() {
  return {
      {"[copies]\nmin_words = 3",
       {"The same text!", "the same, text"},
       "the same text of 3 words",
       {"Two words", "Two words"}},
      {"[copies]",
       {"Größe der neuen Datei", "GRÖSSE DER NEUEN DATEI"},
       "same text",
       {"Größe der neuen Datei", "Größe der neuen Dateien"}},
      {"[numbers]",
       {"page 210", "Seite 201"},
       "of the source only: 210; of the target only: 201",
       {"page 210", "Seite 210"}},
      {"[numbers]\nmin_share = 1\nwritten_out = 9",
       {"1,234.50 and 99", "1.234,50"},
       "of the source only: 99",
       {"1,234.50", "1.234,50"}},
      {"[numbers]\nmin_share = 1", {"10,000 in 1999", "19 10 000"}, "19", {"10,000 in 1999", "1999: 10 000"}},
      {"[numbers]", {"31/31/1999", "30.30.1998"}, "1998", {"12/31/1999, 1.2.3", "31.12.1999: 1.2.3"}},
      {"[numbers]\nwritten_out = 2", {"3 files", "drei Dateien"}, "of the source only: 3", {"2 files", "zwei Dateien"}},
      {"[numbers]", {"٢٠٤", "203"}, "of the source only: 204", {"٢٠٤", "204"}},
      {"[numbers]", {"%1$s of 555", "%2$s of 556"}, "555", {"%15$s and %020d", "%s und %d"}},
      {"[addresses]",
       {"see http://a.org", "siehe dort"},
       "of the source only: http://a.org",
       {"see http://a.org.", "(http://b.org)"}},
      {"[addresses]\nequal = true",
       {"to me@a.org", "an mich@a.org"},
       "mich@a.org",
       {"<me@a.org>, @you", "me@a.org; you"}},
      {"[addresses]", {"www.a.org", "a"}, "www.a.org", {"://", "a"}},
      {"[placeholders]",
       {"%s of %d", "%s"},
       "of the source only: %d; of the target only: nothing",
       {"%s of %ld", "%2$d von %1$s"}},
      {"[placeholders]", {"{0} of {n}", "{0}"}, "of the source only: {n}", {"{ 0 } 100 % sure", "100%ig"}},
      {"[placeholders]", {"%(name)s", "%(Name)s"}, "%(name)s", {"%(name)s %1 %%d", "%1 %(name)s %%s"}},
      {"[placeholders]\nentities = true", {"A &amp; B", "A und B"}, "&amp;", {"R&D; x", "F&E; x"}},
      {"[placeholders]\ntags = false", {"{a}", "{b}"}, "{a}", {"A &amp; <b>B</b>", "A und B"}},
      {"[placeholders]",
       {"<B>bold</B> <x>", "fett"},
       "</b> <b>",
       {"<b class='x'>bold</b> <x> <code>", "<b>fett</b> <code> <s-x>"}},
      {"[placeholders]\naccelerators = true", {"_File", "Datei"}, "an accelerator", {"_File", "&Datei"}},
      {"[placeholders]\nmax_missing = 1", {"%d of %d", "alle"}, "%d %d", {"%d file", "eine Datei"}},
  };
}
INSTANTIATE_TEST_SUITE_P(Contents, LineRules, testing::ValuesIn(content_cases()));

constexpr char const* english = "The file that you have opened cannot be written to the disk of this computer.";
constexpr char const* german = "Die Datei, die Sie geöffnet haben, kann nicht auf die Festplatte geschrieben werden.";

TEST(LanguageRule, DropsSidesOfAnotherLanguageOrSaysThatItIsNotThere) {
  std::string const rules = "[language]\nsource = \"en\"\ntarget = \"de\"";
  if (std::string const reason = LanguageModels::unsupported_reason(); !reason.empty()) {
    expect_config_error([&] { decide(rules, {english, german}); }, {"rules.toml:1:2: [language]: ", reason});
    return;
  }
  EXPECT_EQ(decide(rules, {english, german}), "");
  EXPECT_EQ(decide(rules, {english, english}), "language: the target looks like \"en\", not \"de\"");
  EXPECT_EQ(decide(rules, {german, german}), "language: the source looks like \"de\", not \"en\"");
  EXPECT_EQ(decide(rules, {"Too short to tell", "Too short to tell"}), "");
  EXPECT_EQ(decide(rules + "\nmin_letters = 10", {english, "The file is too short to tell"}),
            "language: the target looks like \"en\", not \"de\"");
  EXPECT_EQ(decide("[language]\nsource = \"de\"\nothers = \"en\"", {german}), "");
  expect_config_error([&] { decide("[language]\nsource = \"de\"", {german}); }, {"only \"de\" is named"});
  expect_config_error(
      [&] {
        decide("[language]\nsource = \"en\"", {english, german});
      },
      {"rules.toml:1:2: language.target is missing"});
  expect_config_error(
      [&] {
        decide("[language]\nsource = \"english\"\ntarget = \"de\"", {english, german});
      },
      {"rules.toml:2:1: language.source = \"english\" is not a language"});
}

TEST(LineRules, AreAskedInOrderAndTheFirstOneCounts) {
  Cleaner cleaner("[copies]\n[length]\nmax_words = 3\n", "rules.toml", true);
  EXPECT_THAT(decide(cleaner, {"these are four words", "these are four words"}), StartsWith("length: "));
  EXPECT_EQ(decide(cleaner, {"all good", "alles gut"}), "");
  EXPECT_EQ(cleaner.report().lines, 2);
  EXPECT_EQ(cleaner.report().kept, 1);
  EXPECT_EQ(cleaner.report().rules.at(0).name, "length");
  EXPECT_EQ(cleaner.report().rules.at(0).dropped, 1);
  EXPECT_EQ(cleaner.report().rules.at(1).dropped, 0);
  cleaner.finish();
  EXPECT_THAT(cleaner.report().warnings, ElementsAre("rules.toml:1:2: [copies] drops none of 2 pairs"));
}

}  // namespace
}  // namespace heddle
