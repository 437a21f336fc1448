#include <fmt/format.h>
#include <unicode/uchar.h>
#include <unicode/uscript.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/spelling.hpp>
#include <heddle/io/text/text.hpp>

#include "cleaning/rule.hpp"

namespace heddle {
namespace {

std::uint32_t category(char32_t point) {
  return U_GET_GC_MASK(static_cast<UChar32>(point));
}

std::string percent(double share) {
  return fmt::format("{:.0f} %", 100 * share);
}

// --- shares of kinds of characters -------------------------------------------------------------------------------

std::unique_ptr<Rule> characters(RuleOptions const& options) {
  struct Share {
    char const* what;
    std::uint32_t categories;
    double min, max;
  };
  std::array const shares{
      Share{"letters", U_GC_L_MASK | U_GC_M_MASK, options.number("min_letters"), 1},
      Share{"digits", U_GC_N_MASK, 0, options.number("max_digits")},
      Share{"punctuation", U_GC_P_MASK | U_GC_S_MASK, 0, options.number("max_punctuation")},
  };
  return make_side_rule([shares](SideText const& side) -> Rule::Reason {
    std::array<std::int64_t, 3> counts{};
    std::int64_t visible = 0;
    for (char32_t const point : side.points) {
      std::uint32_t const mask = category(point);
      visible += (mask & (U_GC_Z_MASK | U_GC_C_MASK)) == 0 ? 1 : 0;
      for (std::size_t kind = 0; kind < shares.size(); ++kind) {
        counts[kind] += (mask & shares[kind].categories) != 0 ? 1 : 0;
      }
    }
    for (std::size_t kind = 0; kind < shares.size() && visible > 0; ++kind) {
      auto const [what, categories, min, max] = shares[kind];
      double const share = static_cast<double>(counts[kind]) / static_cast<double>(visible);
      if (share < min || share > max) {
        return fmt::format("has {} {}; {}_{} = {}", percent(share), what, share < min ? "min" : "max", what,
                           share < min ? min : max);
      }
    }
    return {};
  });
}

// --- scripts ------------------------------------------------------------------------------------------------------

/// The scripts with these names or codes: "Latin", "Latn". Throws ConfigError for another name.
std::vector<UScriptCode> scripts_named(std::vector<std::string> const& names, std::string const& place) {
  std::vector<UScriptCode> scripts;
  for (std::string const& name : names) {
    int const code = u_getPropertyValueEnum(UCHAR_SCRIPT, name.c_str());
    if (code == UCHAR_INVALID_CODE) {
      std::vector<std::string> known;
      for (int script = 0; script <= u_getIntPropertyMaxValue(UCHAR_SCRIPT); ++script) {
        known.emplace_back(uscript_getName(static_cast<UScriptCode>(script)));
      }
      std::string const meant = nearest_spelling(name, known);
      throw ConfigError("{}: Unicode has no script \"{}\"; {}", place, name,
                        meant.empty() ? "expected names such as \"Latin\", \"Cyrillic\", \"Han\" or codes such as "
                                        "\"Latn\""
                                      : fmt::format("did you mean \"{}\"?", meant));
    }
    scripts.push_back(static_cast<UScriptCode>(code));
  }
  return scripts;
}

std::unique_ptr<Rule> script(RuleOptions const& options) {
  std::vector<std::vector<UScriptCode>> scripts;
  for (char const* const side : {"source", "target"}) {
    scripts.push_back(scripts_named(options.texts(side), options.place(side)));
  }
  if (scripts[0].empty() && (!options.pairs() || scripts[1].empty())) {
    throw ConfigError("{} needs the script of a side: source = \"Latin\"", options.place());
  }
  double const min = options.number("min_share");
  return make_rule([scripts, min](LineText const& line) -> Rule::Reason {
    for (std::size_t side = 0; side < line.sides.size(); ++side) {
      std::int64_t letters = 0;
      std::int64_t expected = 0;
      for (char32_t const point : line.sides[side].points) {
        if (scripts[side].empty() || (category(point) & U_GC_L_MASK) == 0) {
          continue;
        }
        ++letters;
        expected += std::ranges::any_of(
                        scripts[side],
                        [&](UScriptCode code) { return uscript_hasScript(static_cast<UChar32>(point), code) != 0; })
                        ? 1
                        : 0;
      }
      double const share = letters == 0 ? 1 : static_cast<double>(expected) / static_cast<double>(letters);
      if (share < min) {
        return fmt::format("{} has {} letters of the script; min_share = {}", line.name(side), percent(share), min);
      }
    }
    return {};
  });
}

// --- repeats ------------------------------------------------------------------------------------------------------

/// The maximum number of times that a group of `size` words stands in a row. Placeholders are not repeated words.
std::int64_t max_in_a_row(std::vector<std::string_view> const& words, std::int64_t size) {
  std::int64_t equal = 0;
  std::int64_t max = 0;
  for (std::size_t at = static_cast<std::size_t>(size); at < words.size(); ++at) {
    bool const same = words[at] == words[at - static_cast<std::size_t>(size)];
    equal = same && words[at].find_first_of("%{") == words[at].npos ? equal + 1 : 0;
    max = std::max(max, equal);
  }
  return max / size + 1;
}

std::unique_ptr<Rule> repeats(RuleOptions const& options) {
  std::int64_t const max_run = options.integer("max_characters");
  std::int64_t const max_times = options.integer("max_words");
  return make_side_rule([max_run, max_times](SideText const& side) -> Rule::Reason {
    std::int64_t run = 0;
    char32_t last = 0;
    for (char32_t const point : side.points) {
      run = point == last ? run + 1 : 1;
      last = point;
      if (run > max_run) {
        return fmt::format("has a character more than {} times in a row; max_characters = {}", max_run, max_run);
      }
    }
    constexpr std::int64_t max_group = 4;
    for (std::int64_t group = 1; group <= max_group; ++group) {
      if (std::int64_t const times = max_in_a_row(side.words, group); times > max_times) {
        return fmt::format("has {} {} times in a row; max_words = {}",
                           group == 1 ? "a word" : fmt::format("{} words", group), times, max_times);
      }
    }
    return {};
  });
}

// --- broken encodings -----------------------------------------------------------------------------------------------

/// The byte that a character stands for in Windows-1252, where it is not ASCII, also for bytes that have no character
/// there; -1 for other characters.
int byte_of_windows_1252(char32_t point) {
  if (point >= 0x80 && point <= 0xFF) {
    return static_cast<int>(point);
  }
  constexpr std::u32string_view from_0x80 =
      U"\u20AC\uFFFF\u201A\u0192\u201E\u2026\u2020\u2021\u02C6\u2030\u0160\u2039\u0152\uFFFF\u017D\uFFFF"
      U"\uFFFF\u2018\u2019\u201C\u201D\u2022\u2013\u2014\u02DC\u2122\u0161\u203A\u0153\uFFFF\u017E\u0178";
  std::size_t const found = point == 0xFFFF ? from_0x80.npos : from_0x80.find(point);
  return found == from_0x80.npos ? -1 : static_cast<int>(0x80 + found);
}

/// Whether the characters from the first of `text` on are UTF-8 of one character that was read as Windows-1252: "Ã¤",
/// "â€™". Text has some sequences of this form, such as "Ü»": the first character has to be one that seldom stands
/// before a sign, and the decoded character one of Latin, Greek, Cyrillic or general punctuation.
bool starts_mojibake(std::u32string_view text) {
  char32_t const lead = text.front();
  std::size_t const length = lead == 0xE2 ? 3 : 2;
  if ((lead != 0xE2 && lead != 0xC2 && lead != 0xC3 && lead != 0xC5 && lead != 0xCE && lead != 0xCF && lead != 0xD0 &&
       lead != 0xD1) ||
      text.size() < length) {
    return false;
  }
  for (std::size_t at = 1; at < length; ++at) {
    int const byte = byte_of_windows_1252(text[at]);
    if (byte < 0x80 || byte > 0xBF) {
      return false;
    }
  }
  // "â" begins U+2000 to U+2FFF; their second byte is 0x80 to 0x96 for what is common.
  return lead != 0xE2 || byte_of_windows_1252(text[1]) <= 0x96;
}

std::unique_ptr<Rule> mojibake(RuleOptions const& /*options*/) {
  return make_side_rule([](SideText const& side) -> Rule::Reason {
    std::u32string_view const points = side.points;
    for (std::size_t at = 0; at < points.size(); ++at) {
      if (points[at] < 0x80) {
        continue;
      }
      if (points[at] == 0xFFFD) {
        return "has U+FFFD, which stands for bytes that were lost";
      }
      if (starts_mojibake(points.substr(at))) {
        return fmt::format("has \"{}\", which looks like UTF-8 that was read as Windows-1252",
                           encode_utf8(points.substr(at, points[at] == 0xE2 ? 3 : 2)));
      }
    }
    return {};
  });
}

std::unique_ptr<Rule> control(RuleOptions const& /*options*/) {
  return make_side_rule([](SideText const& side) -> Rule::Reason {
    constexpr std::uint32_t refused = U_GC_CC_MASK | U_GC_CO_MASK | U_GC_CN_MASK;
    auto const found = std::ranges::find_if(
        side.points, [](char32_t point) { return point != '\t' && (category(point) & refused) != 0; });
    if (found == side.points.end()) {
      return {};
    }
    return fmt::format("has U+{:04X}, a control, private or unassigned character", static_cast<std::uint32_t>(*found));
  });
}

}  // namespace

std::vector<RuleKind> character_rules() {
  return {
      {.name = "control",
       .meaning = "lines with control characters, except tabs, or characters of private use or without a meaning",
       .make = control},
      {.name = "mojibake",
       .meaning = "lines with U+FFFD, or with UTF-8 that was read as Latin-1 or Windows-1252",
       .make = mojibake},
      {.name = "characters",
       .meaning = "lines with a side of few letters, or of much punctuation or many digits; shares of what is not a "
                  "space",
       .options = {number_option("min_letters", "share, 0 to 1", 0.3, 0, 1),
                   number_option("max_digits", "share, 0 to 1", 0.5, 0, 1),
                   number_option("max_punctuation", "share of punctuation and symbols, 0 to 1", 0.6, 0, 1)},
       .make = characters},
      {.name = "repeats",
       .meaning = "lines that repeat a character, a word or a group of up to four words many times in a row",
       .options = {integer_option("max_characters", "the same character in a row", 10, 1),
                   integer_option("max_words", "times that words may follow themselves", 3, 1)},
       .make = repeats},
      {.name = "script",
       .meaning = "lines with a side of which few letters are of the script of its language",
       .use = RuleUse::if_named,
       .options = {texts_option("source", "Unicode's name or code, or a list: [\"Han\", \"Hiragana\", \"Katakana\"]"),
                   texts_option("target", "the same; an empty list for any script"),
                   number_option("min_share", "share of the letters, 0 to 1", 0.5, 0, 1)},
       .make = script},
  };
}

}  // namespace heddle
