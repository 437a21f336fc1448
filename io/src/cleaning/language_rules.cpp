#include <fmt/format.h>
#include <unicode/uchar.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/spelling.hpp>

#include "cleaning/language/language_models.hpp"
#include "cleaning/rule.hpp"

namespace heddle {
namespace {

/// The words of a side that are of a language, not of code: without digits, options (--help), placeholders and NAMES.
/// `letters` are theirs.
std::string words_of_language(SideText const& side, std::int64_t& letters) {
  std::string text;
  for (std::string_view const word : side.words) {
    auto const is_small = [](char byte) { return (byte >= 'a' && byte <= 'z') || (byte & 0x80) != 0; };
    if (word.find_first_of("0123456789%{}[]<>\\/=_@&|*") == word.npos && !word.starts_with('-') &&
        std::ranges::any_of(word, is_small)) {
      text += text.empty() ? "" : " ";
      text += word;
    }
  }
  letters = 0;
  for (char const byte : text) {
    bool const latin = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
    letters += latin || (static_cast<unsigned char>(byte) & 0xC0U) == 0xC0 ? 1 : 0;
  }
  return text;
}

std::unique_ptr<Rule> language(RuleOptions const& options) {
  if (std::string const reason = LanguageModels::unsupported_reason(); !reason.empty()) {
    throw ConfigError("{}: {}", options.place(), reason);
  }
  std::vector<std::string> const expected = options.of_sides<std::string>();
  std::vector<std::string> languages;
  auto const add = [&](std::string const& name, std::string const& key) {
    std::vector<std::string> const known = LanguageModels::known();
    if (std::ranges::find(known, name) == known.end()) {
      throw ConfigError("{} = \"{}\" is not a language of libexttextcat; {}", options.place(key), name,
                        nearest_or_all(name, known));
    }
    if (std::ranges::find(languages, name) == languages.end()) {
      languages.push_back(name);
    }
  };
  for (std::size_t side = 0; side < expected.size(); ++side) {
    char const* const key = side == 0 ? "source" : "target";
    if (expected[side].empty()) {
      throw ConfigError("{} is missing: the language of that side, such as {} = \"en\"", options.place(key), key);
    }
    add(expected[side], key);
  }
  for (std::string const& other : options.texts("others")) {
    add(other, "others");
  }
  if (languages.size() < 2) {
    throw ConfigError("{} tells languages from each other, and only \"{}\" is named; others = [\"en\"] names more",
                      options.place(), languages.front());
  }
  std::int64_t const min_letters = options.integer("min_letters");
  auto const models = std::make_shared<LanguageModels const>(languages);
  return make_rule([expected, min_letters, models](LineText const& line) -> Rule::Reason {
    for (std::size_t side = 0; side < line.sides.size(); ++side) {
      std::int64_t letters = 0;
      std::string const text = words_of_language(line.sides[side], letters);
      if (letters < min_letters) {
        continue;
      }
      std::vector<std::string> const found = models->candidates(text);
      if (!found.empty() && std::ranges::find(found, expected[side]) == found.end()) {
        return fmt::format("{} looks like \"{}\", not \"{}\"", line.name(side), found.front(), expected[side]);
      }
    }
    return {};
  });
}

}  // namespace

std::vector<RuleKind> language_rules() {
  return {
      {.name = "language",
       .meaning = "lines with a side that looks like another one of the languages that are named here; needs "
                  "libexttextcat",
       .use = RuleUse::if_named,
       .options = {text_option("source", "a language: \"en\"", ""), text_option("target", "a language", ""),
                   texts_option("others", "more languages that the text may have by mistake; each costs time"),
                   integer_option("min_letters", "sides with fewer letters are too short to tell", 40, 1)},
       .make = language},
  };
}

}  // namespace heddle
