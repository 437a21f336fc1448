#include "measure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/base/spelling.hpp>
#include <iterator>
#include <limits>
#include <map>
#include <ranges>

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

bool is_command(Config const& config, std::string const& metric) {
  return config.train.validate_command.contains(metric);
}

bool is_waited_for(Config const& config, std::string const& command) {
  auto const names_it = [&](std::string const& name) { return measure_named(name).metric == command; };
  auto const in_mean = [&](auto const& member) { return names_it(member.first); };
  return std::ranges::any_of(config.train.best_metric, names_it) ||
         std::ranges::any_of(config.train.mean_metric, in_mean);
}

std::vector<MetricRegistry::Entry> translation_metrics(Config const& config, MetricRegistry const& metrics,
                                                       std::string const& set) {
  TrainConfig const& train = config.train;
  MetricRegistry with_commands = metrics;
  for (auto const& [name, command] : train.validate_command) {
    // Validation runs the program instead.
    try {
      with_commands.add(name, {[](TranslatedCorpus const&) { return std::numeric_limits<double>::quiet_NaN(); }, true});
    } catch (Error const& problem) {
      throw ConfigError("train.validate_command.{}: {}", name, problem.what());
    }
  }
  auto const own = config.data.valid_metrics.find(set);
  bool const has_own = own != config.data.valid_metrics.end();
  std::vector<std::string> names = has_own ? own->second : train.validate_metrics;
  if (!has_own && train.validate_bleu && std::ranges::count(names, "bleu") == 0) {
    names.insert(names.begin(), "bleu");
  }
  if (!has_own) {
    std::ranges::copy(std::views::keys(train.validate_command), std::back_inserter(names));
  }
  std::vector<MetricRegistry::Entry> entries;
  for (std::string const& name : names) {
    MetricRegistry::Entry const& entry =
        with_commands.of(name, has_own ? "data.valid_metrics." + set : train.places.of("validate_metrics"));
    if (std::ranges::count(entries, name, &MetricRegistry::Entry::name) == 0) {
      entries.push_back(entry);
    }
  }
  return entries;
}

namespace {

/// The measure that a key of the configuration names.
Measure const& find_measure(std::vector<Measure> const& measures, std::string const& wanted, std::string_view key) {
  auto const found = std::ranges::find(measures, wanted, [](Measure const& each) { return each.short_name(); });
  if (found != measures.end()) {
    return *found;
  }
  std::vector<std::string> names;
  std::ranges::transform(measures, std::back_inserter(names), [](Measure const& each) { return each.short_name(); });
  throw ConfigError("{} = \"{}\" is not measured in validation; {}", key, wanted,
                    nearest_or_all(wanted, names, "add it to train.validate_metrics"));
}

Measure mean_measure(Config const& config, std::vector<Measure> const& measures) {
  Measure mean{Measure::mean};
  std::string first;
  for (auto const& [name, weight] : config.train.mean_metric) {
    Measure const& member = find_measure(measures, name, "train.mean_metric");
    if (!first.empty() && member.higher_is_better != mean.higher_is_better) {
      throw ConfigError(
          "train.mean_metric has {} and {}: of one a higher value is better, of the other a lower one; expected "
          "metrics "
          "of one direction",
          first, name);
    }
    mean.higher_is_better = member.higher_is_better;
    first = name;
  }
  return mean;
}

}  // namespace

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
  if (!config.train.mean_metric.empty()) {
    all.push_back(mean_measure(config, all));
  }
  return all;
}

std::vector<Measure> best_measures(Config const& config, Registries const& registries) {
  std::vector<Measure> const measured = measures(config, registries);
  std::string const key = config.train.places.of("best_metric");
  std::vector<Measure> best;
  for (std::string const& name : config.train.best_metric) {
    best.push_back(find_measure(measured, name, key));
    if (std::ranges::count(config.train.best_metric, name) > 1) {
      throw ConfigError("{} names {} more than once; expected different metrics", key, name);
    }
  }
  return best;
}

double mean_of(Config const& config, std::vector<MeasuredValue> const& values) {
  double sum = 0;
  double weights = 0;
  for (auto const& [name, weight] : config.train.mean_metric) {
    auto const found =
        std::ranges::find(values, name, [](MeasuredValue const& each) { return each.measure.short_name(); });
    sum += weight * (found == values.end() ? std::numeric_limits<double>::quiet_NaN() : found->value);
    weights += weight;
  }
  return sum / weights;
}

bool Improvement::count(std::int64_t step, double value) {
  bool const better = std::isfinite(value) && (best.step == 0 || best.measure.better(value, best.value));
  without_better = better ? 0 : without_better + 1;
  if (better) {
    best.step = step;
    best.value = value;
  }
  return better;
}

bool count_validation(TrainingState& state, Measure const& measure, double value, std::int64_t plateau_validations) {
  Improvement all{.best = {measure, state.best_value, state.best_step},
                  .without_better = state.validations_without_improvement};
  bool const best = all.count(state.step, value);
  state.best_step = all.best.step;
  state.best_value = all.best.value;
  state.validations_without_improvement = all.without_better;
  if (!best && plateau_validations > 0 && all.without_better % plateau_validations == 0) {
    ++state.plateaus;
  }
  return best;
}

std::string describe_early_stopping(std::vector<Improvement> const& without_better) {
  std::string text;
  for (auto const& [best, digest, count] : without_better) {
    std::string const validations = counted(count, "validation");
    text += text.empty() ? "early stopping: " : "; ";
    text += best.step == 0 ? fmt::format("{} was not finite in {}", best.measure.name(), validations)
                           : fmt::format("no better {} than {} (step {}) in {}", best.measure.name(),
                                         best.measure.number(best.value), readable_count(best.step), validations);
  }
  return text;
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
