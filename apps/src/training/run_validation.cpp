#include "training/run_validation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/parallel/host_values.hpp>

#include "measures/attention_maps.hpp"
#include "measures/validation.hpp"
#include "run/checkpoints/best_checkpoints.hpp"
#include "run/checkpoints/checkpoint.hpp"

namespace heddle {

RunValidation::RunValidation(TrainerSetup const& setup, std::vector<ValidationSet> const& sets)
    : setup_(setup), config_(setup.config), sets_(sets) {
  if (has_sets()) {
    best_measure_ = heddle::best_measure(config_, setup_.registries);
    digest_ = deciding_set().digest();
  }
}

bool RunValidation::is_due(std::int64_t step, bool exhausted) const {
  return has_sets() && (step % config_.train.validate_every == 0 || step == config_.train.steps || exhausted);
}

bool RunValidation::stopped_early(TrainingState const& state) const {
  return config_.train.early_stopping > 0 && state.validations_without_improvement >= config_.train.early_stopping;
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
  return digests;
}

ValidationSet const& RunValidation::deciding_set() const {
  return *std::ranges::find(sets_, best_measure_.set, &ValidationSet::name);
}

std::string RunValidation::restore(Checkpoint const& checkpoint, TrainingState& state,
                                   std::filesystem::path const& checkpoints) {
  Measure const before = measure_named(stored_config(checkpoint).train.best_metric);
  if (!has_sets()) {
    digest_ = checkpoint.contents().valid_dataset;
    best_measure_ = before;
    return "";
  }
  bool const new_data = has_new_validation(checkpoint, config_, setup_.registries.tasks.of(config_), deciding_set());
  return new_data || before.short_name() != best_measure_.short_name()
             ? restart_best(before, new_data, state, checkpoints)
             : "";
}

std::string RunValidation::restart_best(Measure const& before, bool new_data, TrainingState& state,
                                        std::filesystem::path const& checkpoints) const {
  BestValue best{best_measure_};
  if (!new_data && setup_.is_rank_zero()) {
    best = best_with_checkpoint(checkpoints, best_measure_, digest_, state.step);
  }
  best.step = broadcast_value(setup_.parallel.world, best.step);
  best.value = broadcast_value(setup_.parallel.world, best.value);
  std::string const reason =
      new_data ? fmt::format("{} is another validation set than before, or has another tag or other masks",
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
  state.validations_without_improvement = 0;
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
    result = heddle::validate({config_, setup_.registries, sets_, model.engine(), setup_.parallel, setup_.execution,
                               setup_.watch, model.whole(), check});
    if (state.step > 0) {  // the model of a start has no checkpoint that could be the best
      count_validation(state, best_measure_, result->value_of(best_measure_), config_.optimizer.plateau_validations);
    }
  } catch (Stopped const&) {  // the start that resumes validates
  }
  state.validation_pending = !result;
  return result;
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
