#include <unicode/uchar.h>

#include <algorithm>
#include <array>
#include <boost/algorithm/string/replace.hpp>
#include <heddle/io/text/text.hpp>
#include <map>
#include <utility>

#include "pairs/modifiers/kinds.hpp"

namespace heddle {

namespace {

using Type = OptionDescription::Type;
using Words = std::vector<std::string>;

/// The first and the last code point of the scripts of random words.
constexpr std::array<std::pair<char32_t, char32_t>, 18> scripts{{{0x21, 0x7E},          // ASCII
                                                                 {0xA1, 0xFF},          // Latin-1
                                                                 {0x370, 0x3FF},        // Greek
                                                                 {0x400, 0x4FF},        // Cyrillic
                                                                 {0x531, 0x58F},        // Armenian
                                                                 {0x5D0, 0x5F4},        // Hebrew
                                                                 {0x620, 0x6FF},        // Arabic
                                                                 {0x900, 0x97F},        // Devanagari
                                                                 {0x980, 0x9FF},        // Bengali
                                                                 {0xA81, 0xAFF},        // Gujarati
                                                                 {0xE01, 0xE5B},        // Thai
                                                                 {0x1000, 0x109F},      // Burmese
                                                                 {0x10A0, 0x10FF},      // Georgian
                                                                 {0x1780, 0x17F9},      // Khmer
                                                                 {0x3041, 0x30FF},      // Kana
                                                                 {0x4E00, 0x9FFF},      // Chinese
                                                                 {0xAC00, 0xD7A3},      // Hangul
                                                                 {0x1F600, 0x1F64F}}};  // faces

struct TagOptions {
  std::string markup;
  double rate = 0, augment = 0, replace = 0;
};

/// The words of a pair, into which tags are put.
class TaggedPair {
 public:
  TaggedPair(TextPair& pair, TagOptions const& options, Draws& draws)
      : pair_(pair), options_(options), draws_(draws), source_(words_in(pair.source)), target_(words_in(pair.target)) {}

  /// Looks at each link that is the only one of both of its words among the links from the last one on that was looked
  /// at, and whose words differ.
  void apply() {
    std::ranges::sort(pair_.links);
    std::map<std::int32_t, int> sources;
    std::map<std::int32_t, int> targets;
    for (TokenLink const& link : pair_.links) {
      ++sources[link.source];
      ++targets[link.target];
    }
    std::vector<TokenLink> const links = std::exchange(pair_.links, {});
    std::size_t kept = 0;
    for (std::size_t at = 0; at < links.size(); ++at) {
      TokenLink const& link = links[at];
      std::string const& word = target_[static_cast<std::size_t>(link.target)];
      bool const alone = sources[link.source] == 1 && targets[link.target] == 1;
      pair_.links.push_back(link);
      if (!alone || source_[static_cast<std::size_t>(link.source)] == word) {
        continue;
      }
      for (; kept <= at; ++kept) {
        --sources[links[kept].source];
        --targets[links[kept].target];
      }
      if (draws_.chance(options_.rate)) {
        choose(link);
      }
    }
    finish();
  }

 private:
  struct Insertion {
    Words source, target;  ///< in place of the word, or after it
    bool after = false;
    std::int32_t source_words = 0;  ///< where the source's and the target's word are in the markup
    std::int32_t target_words = 0;
  };

  void choose(TokenLink const& link) {
    Insertion insertion;
    double const mode = draws_.uniform();
    auto const at = static_cast<std::size_t>(link.source);
    if (mode < options_.augment) {
      insertion.source = insertion.target = random_words(draws_, 2, 10, 3);
      insertion.after = true;
    } else {
      insertion.target = mode < options_.augment + options_.replace
                             ? random_words(draws_, 2, 10, 3)
                             : Words{target_[static_cast<std::size_t>(link.target)]};
      for (std::string const& word : words_in(options_.markup)) {
        bool const of_target = word.find("{trg}") != word.npos;
        insertion.source_words = word.find("{src}") != word.npos ? static_cast<std::int32_t>(insertion.source.size())
                                                                 : insertion.source_words;
        insertion.target_words =
            of_target ? static_cast<std::int32_t>(insertion.source.size()) : insertion.target_words;
        std::string const text = boost::replace_all_copy(
            boost::replace_all_copy(word, "{trg}", join_words(insertion.target)), "{src}", source_[at]);
        std::ranges::move(words_in(text), std::back_inserter(insertion.source));
      }
    }
    insertions_.emplace_back(link, std::move(insertion));
  }

  /// Writes the texts with all insertions, and moves the links.
  void finish() {
    std::vector<Words> source = apart(source_);
    std::vector<Words> target = apart(target_);
    for (auto const& [link, insertion] : insertions_) {
      Words& from = source[static_cast<std::size_t>(link.source)];
      Words& to = target[static_cast<std::size_t>(link.target)];
      if (insertion.after) {
        from.insert(from.end(), insertion.source.begin(), insertion.source.end());
        to.insert(to.end(), insertion.target.begin(), insertion.target.end());
      } else {
        from = insertion.source;
        to = insertion.target;
      }
    }
    auto const first_source = starts(source);
    auto const first_target = starts(target);
    std::vector<TokenLink> links;
    for (TokenLink const& link : pair_.links) {
      std::int32_t const from = first_source[static_cast<std::size_t>(link.source)];
      std::int32_t const to = first_target[static_cast<std::size_t>(link.target)];
      auto const inserted = std::ranges::find(insertions_, link, &std::pair<TokenLink, Insertion>::first);
      if (inserted == insertions_.end()) {
        links.push_back({from, to});
        continue;
      }
      Insertion const& insertion = inserted->second;
      auto const words = static_cast<std::int32_t>(insertion.target.size());
      if (insertion.after) {
        links.push_back({from, to});
      }
      std::int32_t const begin = insertion.after ? 1 : 0;
      for (std::int32_t word = 0; word < words; ++word) {
        if (!insertion.after) {
          links.push_back({from + insertion.source_words, to + word});
        }
        links.push_back({from + (insertion.after ? 1 : insertion.target_words) + word, to + begin + word});
      }
    }
    std::ranges::sort(links);
    pair_.links = std::move(links);
    pair_.source = joined(source);
    pair_.target = joined(target);
  }

  static std::vector<Words> apart(Words const& words) {
    std::vector<Words> parts;
    for (std::string const& word : words) {
      parts.push_back({word});
    }
    return parts;
  }
  static std::vector<std::int32_t> starts(std::vector<Words> const& parts) {
    std::vector<std::int32_t> begins;
    std::int32_t next = 0;
    for (Words const& words : parts) {
      begins.push_back(next);
      next += static_cast<std::int32_t>(words.size());
    }
    return begins;
  }
  static std::string joined(std::vector<Words> const& parts) {
    Words all;
    for (Words const& words : parts) {
      all.insert(all.end(), words.begin(), words.end());
    }
    return join_words(all);
  }

  TextPair& pair_;
  TagOptions const& options_;
  Draws& draws_;
  Words source_, target_;
  std::vector<std::pair<TokenLink, Insertion>> insertions_;
};

BlockChange make_tags(LayerOptions const& options, double rate) {
  TagOptions const tags{.markup = options.text("template", "__source__ {src} __target__ {trg} __done__"),
                        .rate = rate,
                        .augment = options.number("augment", 0),
                        .replace = options.number("replace", 0)};
  return [tags](std::vector<NumberedPair>& pairs, std::function<Draws(std::int64_t)> const& draws_of,
                Vocabulary const& vocabulary) {
    for (NumberedPair& numbered : pairs) {
      numbered.pair.make_text(vocabulary);
      if (!numbered.pair.links.empty()) {
        Draws draws = draws_of(numbered.index);
        TaggedPair(numbered.pair, tags, draws).apply();
      }
    }
  };
}

PairChange make_prefix(LayerOptions const& options) {
  std::int64_t const min = options.integer("min_words", 2);
  std::int64_t const max = std::max(min, options.integer("max_words", 5));
  std::string const markup = options.text("template", "__start__ {trg} __end__ ");
  return [=](TextPair& pair, Draws& draws) {
    Words const words = words_in(pair.target);
    std::int64_t const count = draws.between(min, max);
    std::int64_t const starts = std::ssize(words) - count + 1;
    if (starts <= 0) {
      return;  // the target is too short
    }
    auto const first = words.begin() + draws.below(starts);
    std::string const prefix = boost::replace_all_copy(markup, "{trg}", join_words({first, first + count}));
    pair.source = prefix + pair.source;
    auto const moved = static_cast<std::int32_t>(count_words(prefix));
    for (TokenLink& link : pair.links) {
      link.source += moved;
    }
  };
}

BlockChange make_noise(LayerOptions const& options, double rate) {
  std::int64_t const min = options.integer("min_word_length", 2);
  std::int64_t const max = std::max(min, options.integer("max_word_length", 5));
  std::int64_t const words = options.integer("max_words", 6);
  return [=](std::vector<NumberedPair>& pairs, std::function<Draws(std::int64_t)> const& draws_of,
             Vocabulary const& /*vocabulary*/) {
    for (std::size_t at = 0, count = pairs.size(); at < count; ++at) {
      Draws draws = draws_of(pairs[at].index);
      if (draws.chance(rate)) {
        Words const noise = random_words(draws, min, max, words);
        NumberedPair added{added_samples + pairs[at].index, {.source = join_words(noise), .target = join_words(noise)}};
        for (std::int32_t word = 0; word < std::ssize(noise); ++word) {
          added.pair.links.push_back({word, word});
        }
        pairs.push_back(std::move(added));
      }
    }
  };
}

OptionDescription count_option(char const* name, char const* meaning) {
  return {.name = name, .meaning = meaning, .min = 1, .max = 100};
}

}  // namespace

std::vector<std::string> random_words(Draws& draws, std::int64_t min_length, std::int64_t max_length,
                                      std::int64_t max_words) {
  std::int64_t const length = draws.between(min_length, max_length);
  auto const [first, last] = scripts[static_cast<std::size_t>(draws.below(std::ssize(scripts)))];
  Words words(static_cast<std::size_t>(draws.between(1, max_words)));
  for (std::string& word : words) {
    std::u32string points;
    while (std::ssize(points) < length) {
      auto const point = static_cast<char32_t>(draws.between(first, last));
      if (u_isgraph(static_cast<UChar32>(point))) {  // assigned, and not a space
        points += point;
      }
    }
    word = encode_utf8(points);
  }
  return words;
}

ModifierKind tags_modifier() {
  return {.name = "tags",
          .meaning = "words of the source with their translation beside them; the rate is of words with a link",
          .options = {{.name = "template", .type = Type::string, .meaning = "the word {src} and its translation {trg}"},
                      {.name = "augment",
                       .type = Type::number,
                       .meaning = "share of random words on both sides without a tag",
                       .max = 1},
                      {.name = "replace",
                       .type = Type::number,
                       .meaning = "share of tags with random words in place of the translation",
                       .max = 1}},
          .needs_alignment = true,
          .new_words = true,
          .of_block = make_tags};
}

ModifierKind prefix_modifier() {
  return {.name = "prefix",
          .meaning = "a phrase of the target before the source",
          .options = {count_option("min_words", "words of the phrase, at least"),
                      count_option("max_words", "at most"),
                      {.name = "template", .type = Type::string, .meaning = "text with the phrase {trg}"}},
          .of_pair = make_prefix};
}

ModifierKind noise_modifier() {
  return {.name = "noise",
          .meaning = "more samples, of random characters, the same on both sides",
          .options = {count_option("min_word_length", "characters of a word, at least"),
                      count_option("max_word_length", "at most"), count_option("max_words", "words, at most")},
          .of_block = make_noise};
}

}  // namespace heddle
