#include "measure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/base/spelling.hpp>
#include <map>

namespace heddle {

std::string validation_key(std::string const& name, std::string const& set) {
  return fmt::format("valid_{}{}{}", name, set.empty() ? "" : "/", set);
}

Measure measure_named(std::string const& name) {
  std::size_t const slash = name.find('/');
  std::string const metric = name.substr(0, slash);
  return {metric == "perplexity" ? "loss" : metric, slash == std::string::npos ? "" : name.substr(slash + 1)};
}

std::string Measure::key() const {
  return validation_key(metric, set);
}

std::string Measure::name() const {
  static std::map<std::string, std::string> const labels{
      {"accuracy", "masked accuracy"}, {"bleu", "BLEU"},      {"chrf", "chrF2"}, {"bleu_zh", "BLEU (zh)"},
      {"bleu_char", "BLEU (char)"},    {"chrf++", "chrF2++"}, {"ter", "TER"},    {"loss", "validation loss"}};
  auto const label = labels.find(metric);
  if (set.empty()) {
    return label == labels.end() ? metric : label->second;
  }
  return fmt::format("{} {}", set, label == labels.end() || metric == "loss" ? metric : label->second);
}

std::string Measure::number(double value) const {
  if (std::isnan(value)) {
    return "nan";  // without its sign, which says nothing
  }
  if (metric == "accuracy") {
    return fmt::format("{:.2f} %", 100 * value);
  }
  return metric == "loss" ? fmt::format("{:.4f}", value) : fmt::format("{:.2f}", value);
}

bool Measure::better(double value, double other) const {
  return higher_is_better ? value > other : value < other;
}

std::vector<MetricRegistry::Entry> translation_metrics(Config const& config, MetricRegistry const& metrics,
                                                       std::string const& set) {
  TrainConfig const& train = config.train;
  auto const own = config.data.valid_metrics.find(set);
  bool const has_own = own != config.data.valid_metrics.end();
  std::vector<std::string> names = has_own ? own->second : train.validate_metrics;
  if (!has_own && train.validate_bleu && std::ranges::count(names, "bleu") == 0) {
    names.insert(names.begin(), "bleu");
  }
  std::vector<MetricRegistry::Entry> entries;
  for (std::string const& name : names) {
    MetricRegistry::Entry const& entry =
        metrics.of(name, has_own ? "data.valid_metrics." + set : train.places.of("validate_metrics"));
    if (std::ranges::count(entries, name, &MetricRegistry::Entry::name) == 0) {
      entries.push_back(entry);
    }
  }
  return entries;
}

std::vector<Measure> measures(Config const& config, Registries const& registries) {
  std::vector<std::string> sets{""};
  for (auto const& [name, path] : config.data.valid_sets) {
    sets.push_back(name);
  }
  std::vector<Measure> all;
  for (std::string const& set : sets) {
    all.push_back({"loss", set, false});
    if (registries.tasks.of(config).measures_accuracy()) {
      all.push_back({"accuracy", set, true});
    }
    for (MetricRegistry::Entry const& entry : translation_metrics(config, registries.metrics, set)) {
      all.push_back({entry.name, set, entry.metric.higher_is_better});
    }
  }
  return all;
}

Measure best_measure(Config const& config, Registries const& registries) {
  std::string const& wanted = config.train.best_metric;
  std::vector<std::string> names;
  for (Measure const& measure : measures(config, registries)) {
    names.push_back(measure.short_name());
    if (names.back() == wanted) {
      return measure;
    }
  }
  throw ConfigError("{} = \"{}\" is not measured in validation; {}", config.train.places.of("best_metric"), wanted,
                    nearest_or_all(wanted, names, "add it to train.validate_metrics"));
}

bool count_validation(TrainingState& state, Measure const& measure, double value, std::int64_t plateau_validations) {
  bool const best = std::isfinite(value) && (state.best_step == 0 || measure.better(value, state.best_value));
  state.validations_without_improvement = best ? 0 : state.validations_without_improvement + 1;
  if (best) {
    state.best_step = state.step;
    state.best_value = value;
  } else if (plateau_validations > 0 && state.validations_without_improvement % plateau_validations == 0) {
    ++state.plateaus;
  }
  return best;
}

std::string describe_early_stopping(TrainingState const& state, Measure const& measure) {
  std::string const validations = counted(state.validations_without_improvement, "validation");
  return state.best_step == 0
             ? fmt::format("early stopping: {} was not finite in {}", measure.name(), validations)
             : fmt::format("early stopping: no better {} than {} (step {}) in {}", measure.name(),
                           measure.number(state.best_value), readable_count(state.best_step), validations);
}

double score_of(MetricRegistry::Entry const& entry, TranslatedCorpus const& corpus) {
  std::string const who =
      fmt::format("the metric {}{}", entry.name, entry.origin == "built-in" ? "" : " of the plug-in " + entry.origin);
  try {
    return entry.metric.score(corpus);
  } catch (std::exception const& problem) {
    throw Error("{} fails: {}", who, problem.what());
  } catch (...) {
    throw Error("{} fails: it throws an object that is not a std::exception", who);
  }
}

}  // namespace heddle
