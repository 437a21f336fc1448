#include "inference/forced_translation.hpp"

#include <algorithm>
#include <iterator>
#include <map>

#include "inference/alignment.hpp"

namespace heddle {

std::vector<ForcedTranslation> given_translations(TrainedModel const& model, std::span<GeneratedLine const> lines) {
  std::vector<ForcedTranslation> translations;
  auto const framed = static_cast<std::ptrdiff_t>(model.frame().source.size());
  for (GeneratedLine const& line : lines) {
    std::vector<std::int32_t> source = line.encoded.tokens.value_or(std::vector<std::int32_t>());
    source.erase(source.begin(), source.begin() + (source.empty() ? 0 : framed));
    for (Translation& translation : translations_of(model, line)) {
      GivenTarget given{source, translation.tokens};
      translations.push_back({&line.line, std::move(translation), std::move(given)});
    }
  }
  return translations;
}

void force(ForcedDecoding const& forcing, TrainedModel& model, std::vector<ForcedTranslation>& translations) {
  std::map<std::string, std::vector<ForcedTranslation*>> by_adapter;
  for (ForcedTranslation& translation : translations) {
    if (!translation.given.source.empty()) {
      by_adapter[translation.line->adapter].push_back(&translation);
    }
  }
  for (auto const& [adapter, own] : by_adapter) {
    std::vector<GivenTarget> given;
    std::ranges::transform(own, std::back_inserter(given), [](auto const* each) { return each->given; });
    std::vector<ForcedTarget> forced = forcing.decode(model.with_adapter(adapter), given);
    for (std::size_t index = 0; index < own.size(); ++index) {
      own[index]->forced = std::move(forced[index]);
    }
  }
}

void choose_by_coverage(double penalty, std::int64_t n_best, std::vector<ForcedTranslation>& translations) {
  std::vector<ForcedTranslation> chosen;
  for (auto begin = translations.begin(); begin != translations.end();) {
    auto const end =
        std::find_if(begin, translations.end(), [&](auto const& each) { return each.line != begin->line; });
    std::for_each(begin, end, [&](ForcedTranslation& each) {
      each.translation.score += penalty * coverage(each.forced.attention, each.given.source.size());
    });
    std::stable_sort(begin, end, [](auto const& left, auto const& right) {
      return left.translation.score > right.translation.score;
    });
    std::move(begin, begin + std::min(end - begin, n_best), std::back_inserter(chosen));
    begin = end;
  }
  translations = std::move(chosen);
}

}  // namespace heddle
