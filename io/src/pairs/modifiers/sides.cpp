#include <algorithm>
#include <utility>

#include "pairs/modifiers/kinds.hpp"

namespace heddle {

namespace {

using Type = OptionDescription::Type;

PairChange make_swap(LayerOptions const& options) {
  bool const has_tag = options.has("tag");
  std::string const tag = options.text("tag", "");
  return [=](TextPair& pair, Draws&) {
    std::swap(pair.source, pair.target);
    for (TokenLink& link : pair.links) {
      std::swap(link.source, link.target);
    }
    std::ranges::sort(pair.links);
    if (has_tag) {
      pair.tag = tag;
    }
  };
}

PairChange make_sampling(LayerOptions const& options) {
  double const alpha = options.number("alpha", 0.1);
  std::string const side = options.text("side", "both");
  return [=](TextPair& pair, Draws&) {
    pair.source_sampling = side == "target" ? 0 : alpha;
    pair.target_sampling = side == "source" ? 0 : alpha;
  };
}

}  // namespace

ModifierKind swap_modifier() {
  return {.name = "swap",
          .meaning = "the target as source, and the source as target",
          .options = {{.name = "tag",
                       .type = Type::string,
                       .meaning = "text before such a source, in place of the corpus's tag",
                       .may_be_empty = true}},
          .needs_joint = true,
          .new_words = true,
          .of_pair = make_swap};
}

ModifierKind sampling_modifier() {
  return {.name = "subword_sampling",
          .meaning = "a segmentation that is drawn: BPE-dropout, or samples of a unigram model",
          .options = {{.name = "alpha",
                       .type = Type::number,
                       .meaning = "share of the merges that are left out; or the exponent of probabilities",
                       .max = 1,
                       .above_min = true},
                      {.name = "side",
                       .type = Type::string,
                       .meaning = "which side is drawn",
                       .choices = {"both", "source", "target"}}},
          .needs_sampling = true,
          .of_pair = make_sampling};
}

}  // namespace heddle
