#pragma once

#include <heddle/io/cleaning/cleaner.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "test.hpp"

namespace heddle {

/// Decides on a line. Returns the rule and its reason, "length: the source has …"; "" if it is kept.
inline std::string decide(Cleaner& cleaner, std::vector<std::string_view> const& sides) {
  auto const dropped = cleaner.decide(cleaner.look_at(sides));
  return dropped ? cleaner.report().rules[dropped->rule].name + ": " + dropped->reason : "";
}

/// The same with these rules, for the first pair, or the first line of one text.
inline std::string decide(std::string_view rules, std::vector<std::string_view> const& sides) {
  Cleaner cleaner(rules, "rules.toml", sides.size() == 2);
  return decide(cleaner, sides);
}

/// The numbers, from 1, of the lines that a cleaner keeps.
inline std::vector<std::size_t> kept(Cleaner& cleaner, std::vector<std::vector<std::string_view>> const& lines) {
  std::vector<std::size_t> numbers;
  for (std::size_t index = 0; index < lines.size(); ++index) {
    if (decide(cleaner, lines[index]).empty()) {
      numbers.push_back(index + 1);
    }
  }
  return numbers;
}

}  // namespace heddle
