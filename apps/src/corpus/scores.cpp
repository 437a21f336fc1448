#include "corpus/scores.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <memory>

#include "run/metrics/measure.hpp"

namespace heddle {
namespace {

/// A metric of Heddle's own.
std::unique_ptr<TranslationMetric> metric_named(std::string const& name, std::string const& tokenize) {
  auto const& names = value_names<BleuTokenization>;
  auto const found = std::ranges::find(names, tokenize);
  if (found == names.end()) {
    throw UsageError("--tokenize {}: expected one of {}", tokenize, fmt::join(names, ", "));
  }
  return name == "bleu" ? bleu_metric(static_cast<BleuTokenization>(found - names.begin())) : translation_metric(name);
}

/// The metric that an option names. Throws UsageError, which suggests another, if it is not registered.
MetricRegistry::Entry const& metric_of_option(MetricRegistry const& registry, std::string const& name) {
  try {
    return registry.of(name, "--metric");
  } catch (ConfigError const& error) {
    throw UsageError(error.what());
  }
}

}  // namespace

Scores::Scores(ScoreOptions const& options, std::size_t references, MetricRegistry const& registry)
    : confidence_(options.confidence),
      compared_(!options.baseline.empty()),
      counts_words_(options.tokenize == "13a" && std::ranges::count(options.metrics, "bleu") > 0),
      references_(references) {
  for (std::string const& name : options.metrics) {
    if (MetricRegistry::Entry const& entry = metric_of_option(registry, name); entry.origin != "built-in") {
      if (references > 1) {
        throw UsageError("--metric {}: a plug-in's metric takes one reference for each line", name);
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
    throw DataError("{} has {} lines; there are more translations to compare it with", baseline_->path().string(),
                    readable_count(baseline_->line_number()));
  }
  for (std::size_t index = 0; index < systems_.size(); ++index) {
    systems_[index].add(hypothesis, references);
    if (compared_) {
      baselines_[index].add(other, references);
    }
  }
  ++lines_;
  lines_without_spaces_ += counts_words_ && is_written_without_spaces(references.front()) ? 1 : 0;
  if (!of_plugins_.empty()) {
    text_.hypotheses.push_back(hypothesis);
    text_.baseline.push_back(other);
    text_.references.push_back(references.front());
    text_.sources.push_back(source);
  }
}

std::vector<ScoreResult> Scores::results() {
  if (std::string rest; compared_ && baseline_->next(rest)) {
    throw DataError("{} has more lines than there are translations to compare it with", baseline_->path().string());
  }
  std::vector<ScoreResult> results;
  auto const add_baseline = [&](ScoreResult result) {
    result.of_baseline = true;
    results.push_back(std::move(result));
  };
  for (std::size_t index = 0; index < systems_.size(); ++index) {
    if (compared_) {
      add_baseline(result_of(baselines_[index]));
    }
    ScoreResult result = result_of(systems_[index]);
    if (confidence_) {
      result.confidence = confidence_of(systems_[index]);
    }
    if (compared_) {
      result.p_value = p_value_of(baselines_[index], systems_[index]);
    }
    results.push_back(std::move(result));
  }
  for (MetricRegistry::Entry const& metric : of_plugins_) {
    if (compared_) {
      add_baseline(result_of(metric, text_.baseline));
    }
    results.push_back(result_of(metric, text_.hypotheses));
  }
  return results;
}

std::string Scores::advice() const {
  return 2 * lines_without_spaces_ <= lines_
             ? ""
             : "the references are Chinese or Japanese, in which BLEU's tokenizer 13a finds hardly any words: "
               "--tokenize zh is for Chinese, and --tokenize char for both (in training: the metrics bleu_zh and "
               "bleu_char)";
}

ScoreResult Scores::result_of(MetricRegistry::Entry const& metric, std::vector<std::string> const& hypotheses) const {
  bool const has_sources =
      std::ranges::any_of(text_.sources, [](std::string const& source) { return !source.empty(); });
  return {.name = metric.name,
          .signature = fmt::format("nrefs:1|version:heddle-{}", HEDDLE_VERSION),
          .score = score_of(
              metric, {hypotheses, text_.references, has_sources ? text_.sources : std::span<std::string const>()})};
}

ScoreResult Scores::result_of(CorpusScore const& corpus) const {
  std::string resampling;
  if (confidence_ || compared_) {
    resampling = fmt::format("|bs:{}|seed:{}", Resampling().samples, Resampling().seed);
  }
  return {.name = corpus.metric().name(),
          .signature = fmt::format("nrefs:{}{}|{}|version:heddle-{}", references_, resampling,
                                   corpus.metric().signature(), HEDDLE_VERSION),
          .score = corpus.score(),
          .details = corpus.details()};
}

std::string describe(ScoreResult const& result) {
  std::string text = fmt::format("{}|{} = {:.2f}", result.name, result.signature, result.score);
  if (result.confidence) {
    text += fmt::format(" (μ = {:.2f} ± {:.2f})", result.confidence->mean, result.confidence->half_width);
  }
  text += result.details;
  if (result.of_baseline) {
    text += "  # the baseline";
  }
  if (result.p_value) {
    text += fmt::format("  # p = {:.4f}", *result.p_value);
  }
  return text;
}

boost::json::object to_json(ScoreResult const& result) {
  boost::json::object object{{"name", result.name}, {"score", result.score}, {"signature", result.signature}};
  if (!result.details.empty()) {
    object["verbose_score"] = result.details.substr(1);  // without its space
  }
  if (result.confidence) {
    object["confidence_mean"] = result.confidence->mean;
    object["confidence_var"] = result.confidence->half_width;
  }
  if (result.of_baseline) {
    object["baseline"] = true;
  }
  if (result.p_value) {
    object["p_value"] = *result.p_value;
  }
  return object;
}

}  // namespace heddle
