#pragma once

#include <heddle/core/layers/registries.hpp>
#include <heddle/io/checkpoint/checkpoint.hpp>
#include <string>
#include <vector>

namespace heddle {

/// A number that each validation measures: a metric of a validation set.
struct Measure {
  std::string metric = "loss";  ///< "loss", "accuracy" (on masked tokens), or a registered metric of translations
  std::string set = {};         ///< "": data.valid; else its name in data.valid_sets
  bool higher_is_better = false;

  /// Its name in train.best_metric: "bleu", "loss/medical".
  std::string short_name() const { return metric + (set.empty() ? "" : "/" + set); }
  /// Its key in metrics.jsonl: "valid_bleu", "valid_loss/medical".
  std::string key() const;
  /// "validation loss", "medical BLEU".
  std::string name() const;
  /// The value as text: "1.2345" of a loss, "38.21" of BLEU.
  std::string number(double value) const;
  /// Whether a finite value is better than `other`.
  bool better(double value, double other) const;
};

/// The measure with a short name; of an unknown metric that higher values are better is not set.
Measure measure_named(std::string const& name);

struct MeasuredValue {
  Measure measure;
  double value = 0;
};

/// The best value over the validations of a run.
struct BestValue {
  Measure measure;
  double value = 0;
  std::int64_t step = 0;  ///< 0: none was finite yet
};

/// The key of something of a validation set in metrics.jsonl: "valid_NAME", or "valid_NAME/SET".
std::string validation_key(std::string const& name, std::string const& set);

/// The metrics that translations of a validation set ("": data.valid) are measured by: those of data.valid_metrics,
/// else bleu if train.validate_bleu is set, and those of train.validate_metrics. Throws ConfigError for one that is not
/// registered.
std::vector<MetricRegistry::Entry> translation_metrics(Config const& config, MetricRegistry const& metrics,
                                                       std::string const& set);

/// All that a validation measures, first of data.valid, then of the others. Throws as translation_metrics does.
std::vector<Measure> measures(Config const& config, Registries const& registries);

/// The measure that decides which checkpoint is the best. Throws ConfigError if train.best_metric is not measured.
Measure best_measure(Config const& config, Registries const& registries);

/// Counts a validation after the state's step: its value is the best one, or one more validation without a better one.
/// Returns whether it is the best. Each `plateau_validations` of the latter in a row are a plateau; 0: none is.
bool count_validation(TrainingState& state, Measure const& measure, double value, std::int64_t plateau_validations = 0);

/// Why a run stops early: "early stopping: no better BLEU than 38.21 (step 7,500) in 5 validations".
std::string describe_early_stopping(TrainingState const& state, Measure const& measure);

/// The metric's value of a corpus. Throws Error that names the metric and its plug-in where the function throws.
double score_of(MetricRegistry::Entry const& entry, TranslatedCorpus const& corpus);

}  // namespace heddle
