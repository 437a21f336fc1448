#include "corpus/scores.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/io/metrics/significance.hpp>
#include <iostream>
#include <memory>

#include "validation/measure.hpp"

namespace heddle {
namespace {

/// A metric of Heddle's own.
std::unique_ptr<TranslationMetric> metric_named(std::string const& name, std::string const& tokenize) {
  return name == "bleu" && tokenize == "none" ? bleu_metric(BleuTokenization::none) : translation_metric(name);
}

}  // namespace

Scores::Scores(ScoreOptions const& options, std::size_t references, MetricRegistry const& registry)
    : confidence_(options.confidence), compared_(!options.baseline.empty()), references_(references) {
  for (std::string const& name : options.metrics) {
    if (MetricRegistry::Entry const& entry = registry.of(name, "--metric"); entry.origin != "built-in") {
      if (references > 1) {
        throw UsageError(fmt::format("--metric {}: a plug-in's metric takes one reference for each line", name));
      }
      of_plugins_.push_back(entry);
      continue;
    }
    systems_.emplace_back(metric_named(name, options.tokenize), confidence_ || compared_);
    if (compared_) {
      baselines_.emplace_back(metric_named(name, options.tokenize), true);
    }
  }
  if (compared_) {
    baseline_.emplace(options.baseline, InvalidUtf8::replace);
  }
}

void Scores::add(std::string const& hypothesis, std::span<std::string const> references, std::string const& source) {
  std::string other;
  if (compared_ && !baseline_->next(other)) {
    throw DataError(fmt::format("{} has {} lines; there are more translations to compare it with",
                                baseline_->path().string(), readable_count(baseline_->line_number())));
  }
  for (std::size_t index = 0; index < systems_.size(); ++index) {
    systems_[index].add(hypothesis, references);
    if (compared_) {
      baselines_[index].add(other, references);
    }
  }
  if (!of_plugins_.empty()) {
    text_.hypotheses.push_back(hypothesis);
    text_.baseline.push_back(other);
    text_.references.push_back(references.front());
    text_.sources.push_back(source);
  }
}

void Scores::print() {
  if (std::string rest; compared_ && baseline_->next(rest)) {
    throw DataError(
        fmt::format("{} has more lines than there are translations to compare it with", baseline_->path().string()));
  }
  for (std::size_t index = 0; index < systems_.size(); ++index) {
    if (compared_) {
      std::cout << line_of(baselines_[index], false, "  # the baseline");
    }
    std::string const difference =
        compared_ ? fmt::format("  # p = {:.4f}", p_value_of(baselines_[index], systems_[index])) : "";
    std::cout << line_of(systems_[index], confidence_, difference);
  }
  for (MetricRegistry::Entry const& metric : of_plugins_) {
    if (compared_) {
      std::cout << line_of(metric, text_.baseline, "  # the baseline");
    }
    std::cout << line_of(metric, text_.hypotheses, "");
  }
}

std::string Scores::line_of(MetricRegistry::Entry const& metric, std::vector<std::string> const& hypotheses,
                            std::string const& end) const {
  bool const has_sources =
      std::ranges::any_of(text_.sources, [](std::string const& source) { return !source.empty(); });
  double const score =
      score_of(metric, {hypotheses, text_.references, has_sources ? text_.sources : std::span<std::string const>()});
  return fmt::format("{}|nrefs:1|version:heddle-{} = {:.2f}{}\n", metric.name, HEDDLE_VERSION, score, end);
}

std::string Scores::line_of(CorpusScore const& corpus, bool confidence, std::string const& end) const {
  std::string interval;
  std::string resampling;
  if (confidence) {
    auto const [mean, half_width] = confidence_of(corpus);
    interval = fmt::format(" (μ = {:.2f} ± {:.2f})", mean, half_width);
  }
  if (confidence || compared_) {
    resampling = fmt::format("|bs:{}|seed:{}", Resampling().samples, Resampling().seed);
  }
  return fmt::format("{}|nrefs:{}{}|{}|version:heddle-{} = {:.2f}{}{}{}\n", corpus.metric().name(), references_,
                     resampling, corpus.metric().signature(), HEDDLE_VERSION, corpus.score(), interval,
                     corpus.details(), end);
}

}  // namespace heddle
