#include <fmt/format.h>
#include <unicode/uchar.h>

#include <algorithm>
#include <array>
#include <heddle/core/base/error.hpp>
#include <map>

#include "cleaning/rule.hpp"

namespace heddle {
namespace {

bool is_letter(char letter) {
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z');
}
bool is_digit(char letter) {
  return letter >= '0' && letter <= '9';
}

/// The value of a decimal digit of any script; -1 for other characters.
int digit_of(char32_t point) {
  if (point < 0x80) {
    return point >= '0' && point <= '9' ? static_cast<int>(point - '0') : -1;
  }
  return u_isdigit(static_cast<UChar32>(point)) != 0 ? u_charDigitValue(static_cast<UChar32>(point)) : -1;
}

using Items = std::vector<std::string>;

/// The items of the first sorted list that the second one lacks.
Items difference(Items const& left, Items const& right) {
  Items result;
  std::ranges::set_difference(left, right, std::back_inserter(result));
  return result;
}

/// A list for a message, at most three of its items.
std::string describe(Items items) {
  if (items.empty()) {
    return "nothing";
  }
  bool const more = items.size() > 3;
  items.resize(std::min<std::size_t>(items.size(), 3));
  return fmt::format("{}{}", fmt::join(items, " "), more ? " …" : "");
}

/// Why a pair is dropped of which each side has what the other does not have.
std::string describe_difference(char const* what, Items const& source, Items const& target) {
  return fmt::format("{} of the source only: {}; of the target only: {}", what, describe(difference(source, target)),
                     describe(difference(target, source)));
}

// --- numbers --------------------------------------------------------------------------------------------------------

/// A number as it is written: groups of digits, and the separators between them.
struct WrittenNumber {
  Items groups{""};
  std::u32string separators;
};

/// Whether the character at `at`, after a digit, may separate groups of a number's digits: 1,000.5, 10’000, 10 000.
bool separates_digits(std::u32string_view text, std::size_t at) {
  constexpr std::u32string_view separators = U".,' \u2019\u00A0\u202F\u2009";
  return separators.find(text[at]) != separators.npos && at + 1 < text.size() && digit_of(text[at + 1]) >= 0;
}

/// Whether the groups are one number: with one point or comma, or in thousands. 30.12.1899 and 1.2.3 are several.
bool is_one_number(WrittenNumber const& number) {
  std::size_t const count = number.separators.size();
  bool const decimal = count > 0 && (number.separators[count - 1] == '.' || number.separators[count - 1] == ',') &&
                       (count == 1 || number.separators[count - 1] != number.separators[0]);
  for (std::size_t group = 1; group <= count - (decimal ? 1 : 0); ++group) {
    if (number.groups[group].size() != 3 || number.separators[group - 1] != number.separators[0]) {
      return false;
    }
  }
  return true;
}

/// The sorted numbers of a text, without leading zeros and separators: 1,000.50 and 1.000,50 are 100050. Digits of
/// placeholders (%1$s, %02d), encoded bytes (%20) and entities (&#39;) are not numbers.
Items numbers_of(std::u32string_view text) {
  Items numbers;
  auto const add = [&](std::string number) {
    number.erase(0, std::min(number.find_first_not_of('0'), number.size() - 1));
    numbers.push_back(std::move(number));
  };
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '%' || (text[at] == '&' && at + 1 < text.size() && text[at + 1] == '#')) {
      constexpr std::u32string_view skipped = U".-$#";
      while (at + 1 < text.size() && (digit_of(text[at + 1]) >= 0 || skipped.find(text[at + 1]) != skipped.npos)) {
        ++at;
      }
      continue;
    }
    if (digit_of(text[at]) < 0) {
      continue;
    }
    WrittenNumber number;
    for (; at < text.size() && (digit_of(text[at]) >= 0 || separates_digits(text, at)); ++at) {
      if (int const digit = digit_of(text[at]); digit >= 0) {
        number.groups.back() += static_cast<char>('0' + digit);
      } else {
        number.separators += text[at];
        number.groups.emplace_back();
      }
    }
    if (is_one_number(number)) {
      add(fmt::format("{}", fmt::join(number.groups, "")));
    } else {
      std::ranges::for_each(number.groups, add);
    }
  }
  std::ranges::sort(numbers);
  return numbers;
}

std::unique_ptr<Rule> numbers(RuleOptions const& options) {
  double const min_share = options.number("min_share");
  std::int64_t const written_out = options.integer("written_out");
  auto const must_match = [written_out](std::string const& number) {
    constexpr std::size_t max_digits = 18;
    return number.size() > max_digits || std::stoll(number) > written_out;
  };
  return make_rule([min_share, must_match](LineText const& line) -> Rule::Reason {
    Items const source = numbers_of(line.sides[0].points);
    Items const target = numbers_of(line.sides[1].points);
    if (source == target) {
      return {};
    }
    Items common;
    std::ranges::set_intersection(source, target, std::back_inserter(common));
    auto const missing = std::ranges::count_if(difference(source, target), must_match) +
                         std::ranges::count_if(difference(target, source), must_match);
    double const both = 2 * static_cast<double>(common.size());
    if (missing == 0 || both >= min_share * (both + static_cast<double>(missing))) {
      return {};
    }
    return describe_difference("numbers", source, target);
  });
}

// --- addresses ------------------------------------------------------------------------------------------------------

/// The sorted URLs and e-mail addresses of a side.
Items addresses_of(SideText const& side) {
  Items addresses;
  for (std::string_view word : side.words) {
    constexpr std::string_view around = "<>()[]{}\"'.,;:!?";
    std::size_t const scheme = word.find("://");
    if (scheme == word.npos && word.find('@') == word.npos && word.find("www.") == word.npos) {
      continue;
    }
    if (scheme != word.npos) {  // "(see:https://…)" begins at its scheme
      std::size_t begin = scheme;
      while (begin > 0 && is_letter(word[begin - 1])) {
        --begin;
      }
      word.remove_prefix(begin);
      if (begin == scheme) {
        continue;
      }
    }
    word.remove_prefix(std::min(word.find_first_not_of(around), word.size()));
    word = word.substr(0, word.find_first_of("<>\"", 0));
    word = word.substr(0, word.find_last_not_of(around) + 1);
    std::size_t const at = word.find('@');
    bool const mail = at != word.npos && at > 0 && word.find('.', at) != word.npos && !word.starts_with('@');
    if (scheme != word.npos || mail || word.starts_with("www.")) {
      addresses.emplace_back(word);
    }
  }
  std::ranges::sort(addresses);
  return addresses;
}

std::unique_ptr<Rule> addresses(RuleOptions const& options) {
  bool const equal = options.flag("equal");
  return make_rule([equal](LineText const& line) -> Rule::Reason {
    Items const source = addresses_of(line.sides[0]);
    Items const target = addresses_of(line.sides[1]);
    if (equal ? source == target : source.size() == target.size()) {
      return {};
    }
    return describe_difference("addresses", source, target);
  });
}

// --- placeholders
// -----------------------------------------------------------------------------------------------------

/// The length of a conversion of printf at the front of `text`, which begins with '%', also of Python's %(name)s,
/// gettext's %<name>s and Qt's %1; 0 for another percent sign. `canonical` becomes the conversion without its position.
std::size_t printf_length(std::string_view text, std::string& canonical) {
  std::size_t at = 1;
  auto const skip = [&](auto const& belongs) {
    std::size_t const begin = at;
    while (at < text.size() && belongs(text[at])) {
      ++at;
    }
    return text.substr(begin, at - begin);
  };
  canonical = "%";
  if (at < text.size() && (text[at] == '(' || text[at] == '{')) {
    std::size_t const end = text.find(text[at] == '(' ? ')' : '}', at);
    if (end == text.npos) {
      return 0;
    }
    canonical += text.substr(at, end + 1 - at);
    bool const braces = text[at] == '{';
    at = end + 1;
    if (braces) {
      return at;
    }
  }
  std::string_view const position = skip(is_digit);
  if (at < text.size() && text[at] == '$') {
    ++at;
  } else if (!position.empty() && position.size() <= 2 && position[0] != '0' &&
             !(at < text.size() && is_letter(text[at])) &&
             !(at + 1 < text.size() && text[at] == '.' && is_digit(text[at + 1]))) {
    canonical += position;  // Qt's
    return at;
  }
  skip([](char letter) {
    return is_digit(letter) || std::string_view("+-#0'.*").find(letter) != std::string_view::npos;
  });
  skip([](char letter) { return std::string_view("hlLqzjtI").find(letter) != std::string_view::npos; });
  if (at == text.size() || !is_letter(text[at])) {
    return 0;
  }
  constexpr std::array<std::string_view, 5> same{"xX", "eE", "gG", "fF", "di"};
  auto const form = std::ranges::find_if(same, [&](std::string_view one) { return one.find(text[at]) != one.npos; });
  canonical += form == same.end() ? text[at] : form->front();
  return at + 1;
}

/// The length of a name in braces at the front of `text`, which begins with '{': {0}, {name:>3}, {}; 0 for others.
std::size_t braces_length(std::string_view text) {
  constexpr std::size_t max_length = 42;
  std::size_t const end = text.substr(0, max_length).find('}');
  bool const name = end != text.npos && std::ranges::all_of(text.substr(1, end - 1), [](char letter) {
                      return is_letter(letter) || is_digit(letter) ||
                             std::string_view("_.:,-<>^+#!$%").find(letter) != std::string_view::npos;
                    });
  return name ? end + 1 : 0;
}

/// The length of an entity at the front of `text`, which begins with '&': &amp; &#39; &#x27;; 0 for others.
std::size_t entity_length(std::string_view text) {
  constexpr std::size_t max_length = 10;
  std::size_t const end = text.substr(0, max_length).find(';');
  std::size_t const name = text.starts_with("&#") ? 2 : 1;
  bool const good = end != text.npos && end > 2 && std::ranges::all_of(text.substr(name, end - name), [](char letter) {
                      return is_letter(letter) || is_digit(letter);
                    });
  return good ? end + 1 : 0;
}

/// The length of a tag of HTML at the front of `text`, which begins with '<', with its name in `canonical`; 0 for
/// other text in angle brackets.
std::size_t tag_length(std::string_view text, std::string& canonical) {
  constexpr std::array names{"a",     "abbr",  "b",   "big", "br", "center", "code",   "div", "em",
                             "font",  "h1",    "h2",  "h3",  "hr", "i",      "img",    "kbd", "li",
                             "ol",    "p",     "pre", "q",   "s",  "span",   "strong", "sub", "sup",
                             "table", "tbody", "td",  "th",  "tr", "tt",     "u",      "ul",  "var"};
  std::size_t const begin = text.starts_with("</") ? 2 : 1;
  std::size_t end = begin;
  while (end < text.size() && (is_letter(text[end]) || is_digit(text[end]))) {
    ++end;
  }
  std::string name(text.substr(begin, end - begin));
  std::ranges::transform(name, name.begin(), [](char letter) {
    return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter + ('a' - 'A')) : letter;
  });
  std::size_t const close = text.find('>', end);
  if (std::ranges::find(names, name) == names.end() || close == text.npos) {
    return 0;
  }
  std::string_view const rest = text.substr(end, close - end);  // nothing, "/", or attributes
  if (!rest.empty() && !rest.ends_with('/') && !(rest.starts_with(' ') && rest.find('=') != rest.npos)) {
    return 0;
  }
  canonical = (begin == 2 ? "</" : "<") + name + ">";
  return close + 1;
}

struct PlaceholderKinds {
  bool printf, braces, entities, tags, accelerators;
};

/// Whether one letter of the text is marked as a key of a menu: "_File", "&File", "~File".
bool has_accelerator(std::string_view text) {
  std::int64_t marks = 0;
  for (std::size_t at = 0; at + 1 < text.size(); ++at) {
    bool const mark = text[at] == '_' || text[at] == '&' || text[at] == '~';
    marks += mark && (is_letter(text[at + 1]) || is_digit(text[at + 1]) || (text[at + 1] & 0x80) != 0) ? 1 : 0;
  }
  return marks == 1;
}

/// The sorted placeholders of a text.
Items placeholders_of(std::string_view text, PlaceholderKinds const& kinds) {
  Items items;
  for (std::size_t at = 0; at < text.size();) {
    std::string_view const rest = text.substr(at);
    std::size_t length = 0;
    std::string canonical;
    bool const after_mark = at > 0 && (is_digit(text[at - 1]) || text[at - 1] == '~');  // 10%, ~% of Lisp
    if (rest[0] == '%' && rest.starts_with("%%")) {
      at += 2;
      continue;
    }
    if (rest[0] == '%' && kinds.printf && !after_mark) {
      length = printf_length(rest, canonical);
    } else if (rest[0] == '{' && kinds.braces) {
      length = braces_length(rest);
    } else if (rest[0] == '&' && kinds.entities) {
      length = entity_length(rest);
    } else if (rest[0] == '<' && kinds.tags) {
      length = tag_length(rest, canonical);
    }
    if (length > 0) {
      items.push_back(canonical.empty() ? std::string(rest.substr(0, length)) : canonical);
    }
    at += std::max<std::size_t>(length, 1);
  }
  if (kinds.accelerators && has_accelerator(text)) {
    items.emplace_back("an accelerator");
  }
  std::ranges::sort(items);
  return items;
}

std::unique_ptr<Rule> placeholders(RuleOptions const& options) {
  PlaceholderKinds const kinds{options.flag("printf"), options.flag("braces"), options.flag("entities"),
                               options.flag("tags"), options.flag("accelerators")};
  std::int64_t const max_missing = options.integer("max_missing");
  return make_rule([kinds, max_missing](LineText const& line) -> Rule::Reason {
    auto const has_mark = [](SideText const& side) { return side.text.find_first_of("%{&<_~") != side.text.npos; };
    if (std::ranges::none_of(line.sides, has_mark)) {
      return {};
    }
    Items const source = placeholders_of(line.sides[0].text, kinds);
    Items const target = placeholders_of(line.sides[1].text, kinds);
    if (source == target ||
        std::ssize(difference(source, target)) + std::ssize(difference(target, source)) <= max_missing) {
      return {};
    }
    return describe_difference("placeholders", source, target);
  });
}

// --- copies
// -----------------------------------------------------------------------------------------------------------

std::unique_ptr<Rule> copies(RuleOptions const& options) {
  std::int64_t const min_words = options.integer("min_words");
  return make_rule([min_words](LineText const& line) -> Rule::Reason {
    SideText const& source = line.sides[0];
    SideText const& target = line.sides[1];
    if (std::ssize(source.words) < min_words || std::ssize(target.words) < min_words ||
        source.folded() != target.folded()) {
      return {};
    }
    return fmt::format("both sides are the same text of {} words; min_words = {}", source.words.size(), min_words);
  });
}

}  // namespace

std::vector<RuleKind> content_rules() {
  return {
      {.name = "copies",
       .meaning = "pairs whose sides are the same text, except for case and punctuation",
       .use = RuleUse::pairs,
       .options = {integer_option("min_words", "shorter ones are names, which may stay the same", 4, 1)},
       .make = copies},
      {.name = "numbers",
       .meaning = "pairs of which few numbers are on both sides",
       .use = RuleUse::pairs,
       .options = {number_option("min_share", "share of the numbers that have an equal one, 0 to 1", 0.5, 0, 1),
                   integer_option("written_out", "numbers up to this one may be words, or Roman, on the other side",
                                  100)},
       .make = numbers},
      {.name = "addresses",
       .meaning = "pairs of which one side has more URLs and e-mail addresses than the other",
       .use = RuleUse::pairs,
       .options = {flag_option("equal", "they must be the same, too", false)},
       .make = addresses},
      {.name = "placeholders",
       .meaning = "pairs whose placeholders are not the same",
       .use = RuleUse::pairs,
       .options = {flag_option("printf", "%s %1$d %(name)s %1", true),
                   flag_option("braces", "{} {0} {name} ${name}", true), flag_option("entities", "&amp; &#39;", false),
                   flag_option("tags", "<b> </b> <a href=…>: tags of HTML", true),
                   flag_option("accelerators", "_File, &File, ~File: the key of a menu's entry", false),
                   integer_option("max_missing", "placeholders of one side that the other may lack", 0)},
       .make = placeholders},
  };
}

}  // namespace heddle
