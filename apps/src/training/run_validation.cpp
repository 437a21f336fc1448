#include "training/run_validation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <cmath>
#include <exception>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/io/files/sha256.hpp>
#include <iterator>
#include <thread>
#include <utility>

#include "measures/attention_maps.hpp"
#include "measures/validation.hpp"
#include "run/checkpoints/best_checkpoints.hpp"
#include "run/checkpoints/checkpoint.hpp"

namespace heddle {

namespace json = boost::json;

RunValidation::RunValidation(TrainerSetup const& setup, std::vector<ValidationSet> const& sets)
    : setup_(setup),
      config_(setup.config),
      sets_(sets),
      waited_for_(config_.train, setup.directory / "validation" / "waited_for"),
      beside_(config_.train, setup.directory / "validation" / "beside") {
  if (!has_sets()) {
    return;
  }
  for (Measure const& measure : best_measures(config_, setup_.registries)) {
    further_.push_back({.best = {measure}, .digest = digest_of(measure)});
  }
  best_measure_ = further_.front().best.measure;
  digest_ = further_.front().digest;
  further_.erase(further_.begin());
}

bool RunValidation::is_due(std::int64_t step, bool exhausted) const {
  return has_sets() && (step % config_.train.validate_every == 0 || step == config_.train.steps || exhausted);
}

bool RunValidation::stopped_early(TrainingState const& state) const {
  std::size_t const count = without_better(state).size();
  return config_.train.early_stopping_on == EarlyStoppingOn::all ? count == further_.size() + 1 : count > 0;
}

std::vector<Improvement> RunValidation::without_better(TrainingState const& state) const {
  std::vector<Improvement> found{{.best = {best_measure_, state.best_value, state.best_step},
                                  .without_better = state.validations_without_improvement}};
  if (config_.train.early_stopping_on != EarlyStoppingOn::first) {
    found.insert(found.end(), further_.begin(), further_.end());
  }
  std::int64_t const limit = config_.train.early_stopping;
  std::erase_if(found, [limit](Improvement const& each) { return limit == 0 || each.without_better < limit; });
  return found;
}

void RunValidation::restart_stopping(TrainingState& state) {
  state.validations_without_improvement = 0;
  std::ranges::for_each(further_, [](Improvement& each) { each.without_better = 0; });
}

bool RunValidation::finished(TrainingState const& state) const {
  return !state.validation_pending && (state.step >= config_.train.steps || stopped_early(state));
}

std::vector<Measure> RunValidation::measures() const {
  return has_sets() ? heddle::measures(config_, setup_.registries) : std::vector<Measure>();
}

std::map<std::string, std::string> RunValidation::digests() const {
  std::map<std::string, std::string> digests;
  for (ValidationSet const& set : sets_) {
    digests[set.name] = set.digest();
  }
  if (has_sets() && !config_.train.mean_metric.empty()) {
    Measure const mean{Measure::mean};
    digests[mean.data()] = digest_of(mean);
  }
  return digests;
}

std::string RunValidation::digest_of(Measure const& measure) const {
  if (measure.metric != Measure::mean) {
    return std::ranges::find(sets_, measure.set, &ValidationSet::name)->digest();
  }
  std::string members;
  for (auto const& [name, weight] : config_.train.mean_metric) {
    members += fmt::format("{} {} {}\n", name, weight, digest_of(measure_named(name)));
  }
  return sha256(members);
}

std::string RunValidation::further_best() const {
  json::object text;
  for (auto const& [best, digest, without_better] : further_) {
    text[best.measure.short_name()] = {
        {"value", bits_of(best.value)}, {"step", best.step}, {"without_better", without_better}, {"digest", digest}};
  }
  return text.empty() ? "" : json::serialize(text);
}

void RunValidation::restore_further(std::string const& text) {
  if (text.empty()) {
    return;
  }
  try {
    json::value const stored = json::parse(text);
    for (Improvement& each : further_) {
      auto const* const found = stored.as_object().if_contains(each.best.measure.short_name());
      if (found != nullptr && found->at("digest").as_string() == each.digest) {
        each.best.value = number_of_bits(found->at("value"));
        each.best.step = found->at("step").to_number<std::int64_t>();
        each.without_better = found->at("without_better").to_number<std::int64_t>();
      }
    }
  } catch (std::exception const&) {  // another version's: they are counted from now on
  }
}

std::string RunValidation::restore(Checkpoint const& checkpoint, TrainingState& state,
                                   std::filesystem::path const& checkpoints) {
  Measure const before = measure_named(stored_config(checkpoint).train.best_metric.front());
  if (!has_sets()) {
    digest_ = checkpoint.contents().valid_dataset;
    best_measure_ = before;
    return "";
  }
  Task const& task = setup_.registries.tasks.of(config_);
  // Another measure's data is not new because it has another digest.
  bool const same_data = before.data() == best_measure_.data();
  bool const new_data =
      has_new_validation(checkpoint, config_, task, same_data ? digest_ : checkpoint.contents().valid_dataset);
  if (same_samples(stored_config(checkpoint), config_, task)) {
    restore_further(checkpoint.contents().further_best);
  }
  return new_data || before.short_name() != best_measure_.short_name()
             ? restart_best(before, new_data, state, checkpoints)
             : "";
}

std::string RunValidation::restart_best(Measure const& before, bool new_data, TrainingState& state,
                                        std::filesystem::path const& checkpoints) {
  BestValue best{best_measure_};
  if (!new_data && setup_.is_rank_zero()) {
    best = best_with_checkpoint(checkpoints, best_measure_, digest_, state.step);
  }
  best.step = broadcast_value(setup_.parallel.world, best.step);
  best.value = broadcast_value(setup_.parallel.world, best.value);
  std::string const reason =
      new_data && best_measure_.metric == Measure::mean
          ? "the mean is of other metrics, weights or validation sets than before"
      : new_data ? fmt::format("{} is another validation set than before, or has another tag or other masks",
                               config_.data.valid)
                 : fmt::format("train.best_metric = \"{}\" decides now", best_measure_.short_name());
  std::string note;
  if (best.step > 0) {
    note = fmt::format(
        "note: {}: the best value whose checkpoint is there is {} {} at step {}; early stopping starts "
        "again",
        reason, best_measure_.name(), best_measure_.number(best.value), readable_count(best.step));
  } else if (state.best_step > 0) {
    note = fmt::format(
        "note: {}: the best {} so far, {} at step {}, does not count, and early stopping starts again; "
        "its checkpoint stays the best one until there is a new one",
        reason, before.name(), before.number(state.best_value), readable_count(state.best_step));
  }
  state.earlier_best = best.step > 0 ? 0 : state.best_checkpoint();
  state.best_value = best.value;
  state.best_step = best.step;
  restart_stopping(state);
  return note;
}

std::optional<ValidationResult> RunValidation::validate(RunModel& model, TrainingState& state,
                                                        StopSignal const& signal) {
  struct Stopped : std::exception {};
  auto const check = [&] {
    if (any_of(setup_.parallel.world, signal.received())) {
      throw Stopped();
    }
  };
  std::optional<ValidationResult> result;
  try {
    result = measure(model, state.step, check);
    state.values_better = !result->of_averages.empty() && !result->averages_better;
    measure_by_commands(*result, state.step, check);
    if (state.step > 0) {  // the model of a start has no checkpoint that could be the best
      count(*result, state);
    }
  } catch (Stopped const&) {  // the start that resumes validates
    waited_for_.cancel();
    result.reset();
  }
  state.validation_pending = !result;
  return result;
}

ValidationResult RunValidation::measure(RunModel& model, std::int64_t step, std::function<void()> const& check) const {
  auto const validate = [&] {
    return heddle::validate({config_, setup_.registries, sets_, model.engine(), setup_.parallel, setup_.execution,
                             setup_.watch, model.whole(), check});
  };
  DistributedOptimizer& optimizer = model.engine().optimizer();
  ValidationResult of_values = validate();
  if (!optimizer.local().has_averages()) {
    return of_values;
  }
  optimizer.swap_averages(step);
  ValidationResult of_averages;
  try {
    of_averages = validate();
  } catch (...) {  // on all ranks
    optimizer.swap_averages(step);
    throw;
  }
  optimizer.swap_averages(step);
  of_averages.norms = of_values.norms;
  bool const averages = are_better(of_averages, of_values);
  ValidationResult result = averages ? of_averages : of_values;
  result.of_values = of_values.values;
  result.of_averages = of_averages.values;
  result.averages_better = averages;
  return result;
}

bool RunValidation::are_better(ValidationResult const& of_averages, ValidationResult const& of_values) const {
  // A mean or a program's metric is measured of the better ones only.
  for (Measure const& measure : {best_measure_, Measure()}) {
    double const value = of_values.value_of(measure);
    double const average = of_averages.value_of(measure);
    if (std::isfinite(value) && std::isfinite(average) && value != average) {
      return measure.better(average, value);
    }
  }
  return std::isfinite(of_averages.value_of(Measure()));
}

void RunValidation::measure_by_commands(ValidationResult& result, std::int64_t step,
                                        std::function<void()> const& check) {
  if (config_.train.validate_command.empty() && config_.train.mean_metric.empty()) {
    return;
  }
  std::vector<CommandInput> commands = std::exchange(result.commands, {});
  auto const [others, end] = std::ranges::partition(
      commands, [this](CommandInput const& each) { return is_waited_for(config_, each.measure.metric); });
  std::vector<CommandInput> beside(std::make_move_iterator(others), std::make_move_iterator(end));
  commands.erase(others, end);
  std::vector<CommandResult> measured;
  waited_for_.add(step, std::move(commands));
  setup_.watch.phase("waiting for validation commands after step", step);
  while (any_of(setup_.parallel.world, waited_for_.left() > 0)) {
    check();
    std::ranges::move(waited_for_.finished(), std::back_inserter(measured));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  std::ranges::move(waited_for_.finished(), std::back_inserter(measured));  // those that could not be started
  for (Measure const& measure : measures()) {
    if (is_command(config_, measure.metric) && is_waited_for(config_, measure.metric)) {
      auto const found = std::ranges::find(measured, measure.key(),
                                           [](CommandResult const& each) { return each.measured.measure.key(); });
      double const own = found == measured.end() ? 0 : found->measured.value;
      result.values.push_back({measure, broadcast_value(setup_.parallel.world, own)});
    }
    if (measure.metric == Measure::mean) {
      result.values.push_back({measure, mean_of(config_, result.values)});
    }
  }
  for (CommandResult const& each : measured) {
    if (!each.problem.empty()) {
      result.problems.push_back(each.problem);
    }
  }
  beside_.add(step, std::move(beside));
}

void RunValidation::count(ValidationResult const& result, TrainingState& state) {
  count_validation(state, best_measure_, result.value_of(best_measure_), config_.optimizer.plateau_validations);
  for (Improvement& each : further_) {
    each.count(state.step, result.value_of(each.best.measure));
  }
}

std::vector<std::string> RunValidation::warnings(ValidationResult const& result, std::int64_t step) {
  std::vector<std::string> warnings = result.problems;
  bool const look = !warned_of_attention_ && step > config_.optimizer.warmup_steps;
  if (auto const uniform = look ? uniform_attention(result.entropies) : std::nullopt) {
    warned_of_attention_ = true;
    warnings.push_back(*uniform);
  }
  return warnings;
}

}  // namespace heddle
