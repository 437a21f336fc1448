#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/spelling.hpp>
#include <heddle/io/pairs/modifiers.hpp>
#include <iterator>
#include <map>
#include <utility>

#include "pairs/modifiers/kinds.hpp"

namespace heddle {

namespace {

/// The settings of one modifier: its rate and its options.
using SettingsByName = std::map<std::string, Settings>;

SettingsByName by_name(Settings const& settings) {
  SettingsByName found;
  for (auto const& [name, setting] : settings) {
    std::size_t const dot = std::min(name.find('.'), name.size());
    found[name.substr(0, dot)][dot == name.size() ? "rate" : name.substr(dot + 1)] = setting;
  }
  return found;
}

std::vector<std::string> names_of_kinds() {
  std::vector<std::string> names;
  std::ranges::transform(modifier_kinds(), std::back_inserter(names), &ModifierKind::name);
  return names;
}

void require_known(SettingsByName const& given) {
  std::vector<std::string> const names = names_of_kinds();
  for (auto const& [name, settings] : given) {
    if (std::ranges::find(names, name) == names.end()) {
      Setting const& first = settings.begin()->second;
      throw ConfigError("{}: {}: there is no modifier {}; {}", first.origin, first.key, name,
                        nearest_or_all(name, names));
    }
  }
}

/// Throws ConfigError where a text lacks what a modifier needs; `place` is its rate's.
void require_possible(ModifierKind const& kind, Modifiers::Text const& text, std::string const& place) {
  Vocabulary const& vocabulary = text.vocabulary;
  if (kind.needs_alignment && !text.fields.contains(SampleField::alignment)) {
    throw ConfigError(
        "{}: {} needs alignments of words, and {} has none; give them as the third column of a TSV file, as alignments "
        "beside source and target, or to `heddle prepare --alignments`",
        place, kind.name, text.name);
  }
  if (kind.needs_joint && !vocabulary.joint()) {
    throw ConfigError("{}: {} needs one vocabulary for source and target, and {} has two", place, kind.name, text.name);
  }
  if (kind.new_words && text.fields.contains(SampleField::weights)) {
    throw ConfigError("{}: {} changes the words of targets, and {} has weights for them; leave out one of the two",
                      place, kind.name, text.name);
  }
  if (kind.needs_sampling && !(vocabulary.source.can_sample() && vocabulary.target.can_sample())) {
    throw ConfigError("{}: {} needs a vocabulary of SentencePiece, and that of {} is another system's", place,
                      kind.name, text.name);
  }
}

}  // namespace

double Draws::uniform() {
  auto const words = Philox::words(key_, {static_cast<std::uint32_t>(index_), static_cast<std::uint32_t>(index_ >> 32),
                                          static_cast<std::uint32_t>(epoch_), used_++});
  constexpr int kept_bits = 53;
  std::uint64_t const bits = (std::uint64_t{words[0]} << 32 | words[1]) >> (64 - kept_bits);
  return static_cast<double>(bits) / static_cast<double>(std::uint64_t{1} << kept_bits);
}

std::vector<ModifierKind> const& modifier_kinds() {
  static std::vector<ModifierKind> const kinds{merge_modifier(),           context_modifier(),    swap_modifier(),
                                               end_punctuation_modifier(), upper_case_modifier(), title_case_modifier(),
                                               typos_modifier(),           tags_modifier(),       prefix_modifier(),
                                               noise_modifier(),           sampling_modifier()};
  return kinds;
}

Modifiers::Modifiers(Settings const& settings, Text const& text) {
  SettingsByName const given = by_name(settings);
  require_known(given);
  for (ModifierKind const& kind : modifier_kinds()) {
    auto const own = given.find(kind.name);
    if (own == given.end()) {
      continue;
    }
    LayerOptions const options(own->second, "data.modifiers." + kind.name);
    std::vector<OptionDescription> known = kind.options;
    known.push_back({.name = "rate", .type = OptionDescription::Type::number, .meaning = "share", .max = 1});
    options.check(known);
    if (!options.has("rate")) {
      throw ConfigError("{}: {} has options and no rate; for example rate = 0.1",
                        options.place(own->second.begin()->first), kind.name);
    }
    double const rate = options.number("rate", 0);
    if (rate == 0) {
      continue;
    }
    require_possible(kind, text, options.place("rate"));
    applied_.push_back({.name = kind.name,
                        .rate = rate,
                        .of_pair = kind.of_pair ? kind.of_pair(options) : PairChange(),
                        .of_block = kind.of_block ? kind.of_block(options, rate) : BlockChange()});
  }
}

std::string Modifiers::describe() const {
  std::vector<std::string> texts;
  for (Applied const& each : applied_) {
    texts.push_back(fmt::format("{} {}", each.name, each.rate));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

void Modifiers::apply(std::vector<NumberedPair>& pairs, Vocabulary const& vocabulary, std::uint64_t seed,
                      std::int64_t epoch) const {
  for (Applied const& each : applied_) {
    std::uint64_t const key = random_key(seed, "modifier." + each.name);
    if (each.of_block) {
      each.of_block(
          pairs, [&](std::int64_t index) { return Draws(key, epoch, index); }, vocabulary);
      continue;
    }
    for (NumberedPair& numbered : pairs) {
      Draws draws(key, epoch, numbered.index);
      if (!numbered.pair.empty() && draws.chance(each.rate)) {
        numbered.pair.make_text(vocabulary);
        each.of_pair(numbered.pair, draws);
      }
    }
  }
}

}  // namespace heddle
