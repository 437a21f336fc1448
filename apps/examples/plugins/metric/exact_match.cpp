// A plug-in: a metric of translations, the percentage of those that equal their reference.

#include <heddle/core/plugins/entry.hpp>

namespace exact_match_plugin {

/// A pure function of the text. `corpus.sources` has the source of each line.
double exact_match(heddle::TranslatedCorpus const& corpus) {
  double equal = 0;
  for (std::size_t line = 0; line < corpus.hypotheses.size(); ++line) {
    equal += corpus.hypotheses[line] == corpus.references[line] ? 1 : 0;
  }
  return 100 * equal / static_cast<double>(corpus.hypotheses.size());
}

void register_all(heddle::Registries& registries) {
  registries.metrics.add("exact_match", {.score = exact_match, .higher_is_better = true});
}

}  // namespace exact_match_plugin

HEDDLE_PLUGIN(exact_match_plugin::register_all)
