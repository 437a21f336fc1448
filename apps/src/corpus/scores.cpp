#include "corpus/scores.hpp"

#include <fmt/format.h>

#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/io/metrics/significance.hpp>
#include <iostream>
#include <memory>

namespace heddle {
namespace {

/// The names are those of --metric and --tokenize, which the command line has checked.
std::unique_ptr<TranslationMetric> metric_named(std::string const& name, std::string const& tokenize) {
  if (name == "bleu") {
    return bleu_metric(tokenize == "13a" ? BleuTokenization::mteval_13a : BleuTokenization::none);
  }
  return name == "ter" ? ter_metric() : chrf_metric(name == "chrf++" ? 2 : 0);
}

}  // namespace

Scores::Scores(ScoreOptions const& options, std::size_t references)
    : confidence_(options.confidence), compared_(!options.baseline.empty()), references_(references) {
  for (std::string const& name : options.metrics) {
    systems_.emplace_back(metric_named(name, options.tokenize), confidence_ || compared_);
    if (compared_) {
      baselines_.emplace_back(metric_named(name, options.tokenize), true);
    }
  }
  if (compared_) {
    baseline_.emplace(options.baseline, InvalidUtf8::replace);
  }
}

void Scores::add(std::string const& hypothesis, std::span<std::string const> references) {
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
