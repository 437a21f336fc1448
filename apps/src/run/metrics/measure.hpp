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

  /// The metric that is the weighted mean of those of [train.mean_metric], over all sets.
  static constexpr char const* mean = "mean";

  /// Its name in train.best_metric: "bleu", "loss/medical".
  std::string short_name() const { return metric + (set.empty() ? "" : "/" + set); }
  /// Its key in metrics.jsonl: "valid_bleu", "valid_loss/medical".
  std::string key() const;
  /// The name of its data's digest in metrics.jsonl: the set's, or for the mean, which is of several sets, one that no
  /// set has.
  std::string data() const { return metric == mean ? "*mean" : set; }
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

/// The validations of a measure up to now.
struct Improvement {
  BestValue best{};
  std::string digest = {};          ///< of the data that it is measured on
  std::int64_t without_better = 0;  ///< the latest validations without a better value

  /// Counts a validation. Returns whether its value is the best one; one that is not finite never is.
  bool count(std::int64_t step, double value);
};

/// The key of something of a validation set in metrics.jsonl: "valid_NAME", or "valid_NAME/SET".
std::string validation_key(std::string const& name, std::string const& set);

/// Whether a metric is a program of [train.validate_command].
bool is_command(Config const& config, std::string const& metric);

/// Whether a validation waits for this metric, a program: train.best_metric or [train.mean_metric] names it.
bool is_waited_for(Config const& config, std::string const& command);

/// The metrics that translations of a validation set ("": data.valid) are measured by: those of data.valid_metrics,
/// else bleu if train.validate_bleu is set, those of train.validate_metrics and the programs. Throws ConfigError for
/// one that is not registered, and for a program with the name of one that is.
std::vector<MetricRegistry::Entry> translation_metrics(Config const& config, MetricRegistry const& metrics,
                                                       std::string const& set);

/// All that a validation measures, first of data.valid, then of the others, then the mean. Throws as
/// translation_metrics does, and ConfigError for a mean of metrics that are not measured, or of which some are better
/// high and some low.
std::vector<Measure> measures(Config const& config, Registries const& registries);

/// The measures of train.best_metric; the first decides which checkpoint is the best. Throws ConfigError if one is not
/// measured, or named twice.
std::vector<Measure> best_measures(Config const& config, Registries const& registries);

/// The mean of [train.mean_metric]; not a number if one of its values is not.
double mean_of(Config const& config, std::vector<MeasuredValue> const& values);

/// Counts a validation after the state's step: its value is the best one, or one more validation without a better one.
/// Returns whether it is the best. Each `plateau_validations` of the latter in a row are a plateau; 0: none is.
bool count_validation(TrainingState& state, Measure const& measure, double value, std::int64_t plateau_validations = 0);

/// Why a run stops early: "early stopping: no better BLEU than 38.21 (step 7,500) in 5 validations".
std::string describe_early_stopping(std::vector<Improvement> const& without_better);

/// The metric's value of a corpus. Throws Error that names the metric and its plug-in where the function throws.
double score_of(MetricRegistry::Entry const& entry, TranslatedCorpus const& corpus);

}  // namespace heddle
