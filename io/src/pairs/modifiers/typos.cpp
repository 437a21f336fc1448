#include <unicode/uchar.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <heddle/io/text/text.hpp>
#include <map>
#include <set>

#include "pairs/modifiers/kinds.hpp"

namespace heddle {

namespace {

bool is_word_character(char32_t point) {
  return u_isalnum(static_cast<UChar32>(point)) || point == U'_';
}
bool is_space(char32_t point) {
  return u_isUWhiteSpace(static_cast<UChar32>(point));
}
char32_t in_case_of(char32_t point, char32_t example) {
  auto const code = static_cast<UChar32>(point);
  return static_cast<char32_t>(u_isupper(static_cast<UChar32>(example)) ? u_toupper(code) : u_tolower(code));
}

/// The keys beside each key, by their places: letters of a QWERTY keyboard, digits of a number pad.
std::map<char32_t, std::u32string> find_neighbours() {
  struct Key {
    char32_t point;
    double x, y;
  };
  std::vector<Key> letters;
  std::vector<Key> digits;
  double y = 0;
  for (auto const& [shift, row] : {std::pair(0.0, U"qwertyuiop"), {0.25, U"asdfghjkl"}, {0.75, U"zxcvbnm"}}) {
    double x = shift;
    for (char32_t const* point = row; *point != 0; ++point) {
      letters.push_back({*point, x++, y});
    }
    ++y;
  }
  constexpr std::u32string_view pad = U"789456123";
  for (std::size_t place = 0; place < pad.size(); ++place) {
    digits.push_back({pad[place], static_cast<double>(place % 3), static_cast<double>(place / 3)});
  }
  digits.push_back({U'0', 0.5, 3});
  std::map<char32_t, std::u32string> found;
  for (std::vector<Key> const& keys : {letters, digits}) {
    for (Key const& key : keys) {
      for (Key const& other : keys) {
        if (key.point != other.point && std::abs(key.x - other.x) <= 1 && std::abs(key.y - other.y) <= 1) {
          found[key.point] += other.point;
        }
      }
    }
  }
  return found;
}

/// Characters that look alike, in groups.
constexpr std::array<std::u32string_view, 18> similar_groups{U"0OoDQ", U"1lI|", U"17", U"2Z", U"35S", U"38B",
                                                             U"6Gb",   U"9gq",  U"4A", U"ce", U"CG",  U"EF",
                                                             U"mn",    U"hn",   U"MN", U"uv", U"UV",  U"yYv"};

/// A key beside that of the character, in its case; the character itself where none is known.
char32_t neighbour_of(char32_t point, Draws& draws) {
  static std::map<char32_t, std::u32string> const neighbours = find_neighbours();
  if (point >= U'0' && point <= U'9' && draws.chance(0.5)) {  // of the row above the letters
    bool const up = point == U'1' || (point != U'0' && draws.chance(0.5));
    return point == U'0' ? U'9' : up ? (point == U'9' ? U'0' : point + 1) : point - 1;
  }
  auto const found = neighbours.find(static_cast<char32_t>(u_tolower(static_cast<UChar32>(point))));
  if (found == neighbours.end()) {
    return point;
  }
  return in_case_of(found->second[static_cast<std::size_t>(draws.below(std::ssize(found->second)))], point);
}

char32_t similar_to(char32_t point, Draws& draws) {
  std::u32string others;
  for (std::u32string_view const group : similar_groups) {
    if (group.find(point) != group.npos) {
      std::ranges::copy_if(group, std::back_inserter(others), [&](char32_t other) { return other != point; });
    }
  }
  return others.empty() ? point : others[static_cast<std::size_t>(draws.below(std::ssize(others)))];
}

/// A text whose characters know the words that they came from.
class TypedText {
 public:
  TypedText(std::string const& text, Draws& draws) : points_(decode_utf8(text)), draws_(draws) {
    std::int32_t word = -1;
    bool inside = false;
    for (char32_t const point : points_) {
      bool const space = is_space(point);
      word += !space && !inside ? 1 : 0;
      inside = !space;
      words_.push_back(space ? -1 : word);
    }
  }

  void char_swap() {
    if (auto const at = place([&](std::size_t index) {
          return index + 1 < points_.size() && is_word_character(points_[index]) &&
                 is_word_character(points_[index + 1]);
        })) {
      char32_t const first = points_[*at];
      char32_t const second = points_[*at + 1];
      points_[*at] = in_case_of(second, first);
      points_[*at + 1] = in_case_of(first, second);
    }
  }
  void missing_char() {
    if (std::ranges::count_if(points_, is_word_character) > 1) {
      erase(*word_place());
    }
  }
  void extra_char() {
    if (auto const at = word_place()) {
      insert(*at, neighbour_of(points_[*at], draws_));
    }
  }
  void nearby_char() {
    if (auto const at = word_place()) {
      points_[*at] = neighbour_of(points_[*at], draws_);
    }
  }
  void similar_char() {
    if (auto const at = word_place()) {
      points_[*at] = similar_to(points_[*at], draws_);
    }
  }
  void skipped_space() {
    if (auto const at = place([&](std::size_t index) { return points_[index] == U' '; })) {
      erase(*at);
    }
  }
  void random_space() {
    if (auto const at = place([&](std::size_t index) { return !is_space(points_[index]); })) {
      insert(*at, U' ');
      words_[*at] = -1;
    }
  }
  void repeated_char() {
    if (auto const at = word_place()) {
      insert(*at, points_[*at]);
    }
  }
  void unichar() {
    std::vector<std::size_t> repeats;
    for (std::size_t index = 0; index + 1 < points_.size(); ++index) {
      if (points_[index] == points_[index + 1]) {
        repeats.push_back(index++);
      }
    }
    if (!repeats.empty()) {
      erase(repeats[static_cast<std::size_t>(draws_.below(std::ssize(repeats)))]);
    }
  }

  std::string text() const { return encode_utf8(points_); }
  /// Links of the words that there are now.
  std::vector<TokenLink> links(std::vector<TokenLink> const& before) const {
    std::set<TokenLink> links;
    std::int32_t word = -1;
    bool inside = false;
    for (std::size_t index = 0; index < points_.size(); ++index) {
      bool const space = is_space(points_[index]);
      word += !space && !inside ? 1 : 0;
      inside = !space;
      for (TokenLink const& link : before) {
        if (!space && link.source == words_[index]) {
          links.insert({word, link.target});
        }
      }
    }
    return {links.begin(), links.end()};
  }

 private:
  /// One of the places for which `fits`.
  template <class Fits>
  std::optional<std::size_t> place(Fits const& fits) {
    std::vector<std::size_t> places;
    for (std::size_t index = 0; index < points_.size(); ++index) {
      if (fits(index)) {
        places.push_back(index);
      }
    }
    return places.empty() ? std::nullopt
                          : std::optional(places[static_cast<std::size_t>(draws_.below(std::ssize(places)))]);
  }
  std::optional<std::size_t> word_place() {
    return place([&](std::size_t index) { return is_word_character(points_[index]); });
  }
  void insert(std::size_t at, char32_t point) {
    auto const place = static_cast<std::ptrdiff_t>(at);
    points_.insert(points_.begin() + place, point);
    words_.insert(words_.begin() + place, words_[at]);
  }
  void erase(std::size_t at) {
    auto const place = static_cast<std::ptrdiff_t>(at);
    points_.erase(points_.begin() + place);
    words_.erase(words_.begin() + place);
  }

  std::u32string points_;
  std::vector<std::int32_t> words_;  ///< of each character; -1: white space
  Draws& draws_;
};

struct TypoKind {
  char const* name;
  void (TypedText::*apply)();
};
constexpr std::array<TypoKind, 9> operations{{{"char_swap", &TypedText::char_swap},
                                              {"missing_char", &TypedText::missing_char},
                                              {"extra_char", &TypedText::extra_char},
                                              {"nearby_char", &TypedText::nearby_char},
                                              {"similar_char", &TypedText::similar_char},
                                              {"skipped_space", &TypedText::skipped_space},
                                              {"random_space", &TypedText::random_space},
                                              {"repeated_char", &TypedText::repeated_char},
                                              {"unichar", &TypedText::unichar}}};

PairChange make_typos(LayerOptions const& options) {
  bool const chosen = std::ranges::any_of(operations, [&](TypoKind const& each) { return options.has(each.name); });
  std::array<double, operations.size()> probabilities{};
  for (std::size_t index = 0; index < operations.size(); ++index) {
    probabilities[index] = options.number(operations[index].name, chosen ? 0 : 0.1);
  }
  return [probabilities](TextPair& pair, Draws& draws) {
    TypedText typed(pair.source, draws);
    for (std::size_t index = 0; index < operations.size(); ++index) {
      if (draws.chance(probabilities[index])) {
        (typed.*operations[index].apply)();
      }
    }
    pair.links = typed.links(pair.links);
    pair.source = typed.text();
  };
}

}  // namespace

ModifierKind typos_modifier() {
  ModifierKind kind{.name = "typos", .meaning = "sources with errors of a typist", .of_pair = make_typos};
  for (TypoKind const& operation : operations) {
    kind.options.push_back({.name = operation.name,
                            .type = OptionDescription::Type::number,
                            .meaning = "probability of this error in a chosen source; all are 0.1 unless one is given",
                            .max = 1});
  }
  return kind;
}

}  // namespace heddle
