#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>

#include "cleaning/rule.hpp"

namespace heddle {
namespace {

/// Both bounds of a size. Throws ConfigError if no size is within them.
std::array<std::int64_t, 2> bounds(RuleOptions const& options, std::string const& what) {
  std::array const limits{options.integer("min_" + what), options.integer("max_" + what)};
  if (limits[0] > limits[1]) {
    throw ConfigError("{}: min_{} = {} is above max_{} = {}, so every line is dropped",
                      options.place((options.given("max_" + what) ? "max_" : "min_") + what), what, limits[0], what,
                      limits[1]);
  }
  return limits;
}

std::unique_ptr<Rule> length(RuleOptions const& options) {
  auto const words = bounds(options, "words");
  auto const characters = bounds(options, "characters");
  return make_side_rule([words, characters](SideText const& side) -> Rule::Reason {
    for (auto const& [what, size, limits] :
         {std::tuple("words", std::ssize(side.words), words), {"characters", std::ssize(side.points), characters}}) {
      if (size < limits[0]) {
        return fmt::format("has {} {}; min_{} = {}", size, what, what, limits[0]);
      }
      if (size > limits[1]) {
        return fmt::format("has {} {}; max_{} = {}", size, what, what, limits[1]);
      }
    }
    return {};
  });
}

std::unique_ptr<Rule> ratio(RuleOptions const& options) {
  double const max = options.number("max");
  std::int64_t const slack = options.integer("slack");
  return make_rule([max, slack](LineText const& line) -> Rule::Reason {
    std::array const sizes{std::ssize(line.sides[0].points), std::ssize(line.sides[1].points)};
    auto const [shorter, longer] = std::minmax(sizes[0], sizes[1]);
    if (static_cast<double>(longer + slack) <= max * static_cast<double>(shorter + slack)) {
      return {};
    }
    return fmt::format("{} and {} characters; max = {} times, with slack = {}", sizes[0], sizes[1], max, slack);
  });
}

std::unique_ptr<Rule> long_words(RuleOptions const& options) {
  std::int64_t const max = options.integer("max_characters");
  return make_side_rule([max](SideText const& side) -> Rule::Reason {
    for (std::string_view const word : side.words) {
      auto const continues = [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80; };
      bool const may_be_long = std::ssize(word) > max;  // bytes
      std::int64_t const size = may_be_long ? std::ssize(word) - std::ranges::count_if(word, continues) : 0;
      bool const address = word.find("://") != word.npos || word.find('@') != word.npos;
      if (size > max && !address) {
        return fmt::format("has a word of {} characters; max_characters = {}", size, max);
      }
    }
    return {};
  });
}

}  // namespace

std::vector<RuleKind> size_rules() {
  return {
      {.name = "length",
       .meaning = "lines with a side that has too few or too many words or characters",
       .options = {integer_option("min_words", "words are between white space", 1),
                   integer_option("max_words", "of a side", 200, 1), integer_option("min_characters", "of a side", 1),
                   integer_option("max_characters", "of a side", 2000, 1)},
       .make = length},
      {.name = "ratio",
       .meaning = "pairs of which one side has many more characters than the other",
       .use = RuleUse::pairs,
       .options = {number_option("max", "the longer side's characters for each one of the shorter side's", 3, 1),
                   integer_option("slack", "added to both sizes, because short texts differ more", 15)},
       .make = ratio},
      {.name = "long_words",
       .meaning = "lines with a word that is too long and is not an address",
       .options = {integer_option("max_characters", "for languages without spaces leave the rule out", 60, 1)},
       .make = long_words},
  };
}

}  // namespace heddle
