#include <algorithm>
#include <cstddef>

#include "pairs/modifiers/kinds.hpp"

namespace heddle {

namespace {

using Type = OptionDescription::Type;

/// `into` = before, separator, after; links are of the words of the whole.
void join(TextPair& into, TextPair const& before, TextPair const& after, std::string const& separator, bool targets) {
  TextPair joined = after;
  joined.source = before.source + separator + after.source;
  joined.links.clear();
  auto const sources = static_cast<std::int32_t>(count_words(before.source + separator));
  std::int32_t target_words = 0;
  if (targets) {
    joined.target = before.target + separator + after.target;
    target_words = static_cast<std::int32_t>(count_words(before.target + separator));
    joined.links = before.links;
  }
  for (TokenLink const& link : after.links) {
    joined.links.push_back({link.source + sources, link.target + target_words});
  }
  into = std::move(joined);
}

/// Pairs that follow each other become one. A pair with an empty side ends a document, and is not joined.
BlockChange make_merge(LayerOptions const& options, double rate) {
  std::int64_t const min = options.integer("min_lines", 2);
  std::int64_t const max = std::max(min, options.integer("max_lines", 4));
  return [=](std::vector<NumberedPair>& pairs, std::function<Draws(std::int64_t)> const& draws_of,
             Vocabulary const& vocabulary) {
    std::vector<NumberedPair> kept;
    for (std::size_t at = 0; at < pairs.size();) {
      kept.push_back(std::move(pairs[at++]));
      TextPair& first = kept.back().pair;
      Draws draws = draws_of(kept.back().index);
      if (first.empty() || !draws.chance(rate)) {
        continue;
      }
      for (std::int64_t more = draws.between(min, max) - 1; more > 0 && at < pairs.size() && !pairs[at].pair.empty();
           --more) {
        first.make_text(vocabulary);
        pairs[at].pair.make_text(vocabulary);
        join(first, first, pairs[at++].pair, " ", true);
      }
    }
    pairs = std::move(kept);
  };
}

/// Sentences before a pair's come before it, as far as they are of one document.
BlockChange make_context(LayerOptions const& options, double rate) {
  std::int64_t const sentences = options.integer("sentences", 2);
  std::string const separator = options.text("separator", " ");
  bool const targets = options.text("side", "both") == "both";
  return [=](std::vector<NumberedPair>& pairs, std::function<Draws(std::int64_t)> const& draws_of,
             Vocabulary const& vocabulary) {
    for (std::size_t at = pairs.size(); at-- > 0;) {  // from the end, so that those before are as they were
      TextPair& pair = pairs[at].pair;
      Draws draws = draws_of(pairs[at].index);
      if (pair.empty() || !draws.chance(rate)) {
        continue;
      }
      std::int64_t left = draws.between(1, sentences);
      for (std::size_t before = at; left > 0 && before > 0 && !pairs[before - 1].pair.empty(); --left) {
        TextPair& earlier = pairs[--before].pair;
        pair.make_text(vocabulary);
        earlier.make_text(vocabulary);
        join(pair, earlier, pair, separator, targets);
      }
    }
  };
}

}  // namespace

ModifierKind merge_modifier() {
  return {
      .name = "merge",
      .meaning = "several consecutive pairs as one",
      .options = {{.name = "min_lines", .meaning = "number of pairs that become one, at least", .min = 2, .max = 100},
                  {.name = "max_lines", .meaning = "at most", .min = 2, .max = 100}},
      .new_words = true,
      .of_block = make_merge};
}

ModifierKind context_modifier() {
  return {.name = "context",
          .meaning = "the sentences before, of the same document, come first",
          .options =
              {{.name = "sentences", .meaning = "maximum number", .min = 1, .max = 100},
               {.name = "separator", .type = Type::string, .meaning = "text between sentences"},
               {.name = "side", .type = Type::string, .meaning = "which side has them", .choices = {"both", "source"}}},
          .new_words = true,
          .of_block = make_context};
}

}  // namespace heddle
