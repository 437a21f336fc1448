#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/parallel/host_values.hpp>

#include "measures/attention_maps.hpp"
#include "measures/validation.hpp"
#include "run/checkpoints/checkpoint.hpp"
#include "trainer.hpp"

namespace heddle {

bool Trainer::validates_after(std::int64_t step) const {
  return !data_->valid.empty() && (step % config_.train.validate_every == 0 || step == config_.train.steps);
}

std::optional<ValidationResult> Trainer::validate_unless(StopSignal const& signal) {
  struct Stopped : std::exception {};
  auto const check = [&] {
    if (any_of(setup_.parallel.world, signal.received())) {
      throw Stopped();
    }
  };
  if (is_rank_zero()) {
    training_log_->pause();
  }
  setup_.watch.phase("validating after step", state_.step);
  std::optional<ValidationResult> result;
  try {
    result = validate({config_, setup_.registries, data_->valid, *engine_, setup_.parallel, setup_.execution,
                       setup_.watch, *whole_model_, check});
    if (state_.step > 0) {  // the model of a start has no checkpoint that could be the best
      count_validation(state_, best_measure_, result->value_of(best_measure_));
    }
  } catch (Stopped const&) {
    log_.notice(
        fmt::format("the validation after step {} is left to the start that resumes", readable_count(state_.step)));
  }
  state_.validation_pending = !result;
  if (is_rank_zero()) {
    training_log_->resume();
  }
  return result;
}

bool Trainer::finish_validation(StopSignal const& signal) {
  if (is_rank_zero()) {
    signal.set_notice(stop_notice());
  }
  auto validation = validate_unless(signal);
  if (!validation) {
    return false;
  }
  validation->norms.gradients.clear();  // they were not kept
  if (is_rank_zero()) {
    training_log_->validation(state_.step, *validation);
  }
  report_validation(*validation);
  if (state_.step > 0) {
    save_checkpoint({.disk = true, .again = true, .wait = true});
  }
  return true;
}

void Trainer::report_validation(ValidationResult const& validation) {
  if (!is_rank_zero()) {
    return;
  }
  std::ranges::for_each(validation.problems, [this](std::string const& problem) { log_.warn(problem); });
  bool const look = !warned_of_attention_ && state_.step > config_.optimizer.warmup_steps;
  if (auto const uniform = look ? uniform_attention(validation.entropies) : std::nullopt) {
    warned_of_attention_ = true;
    log_.warn(*uniform);
  }
  if (stopped_early(state_)) {
    log_.info(describe_early_stopping(state_, best_measure_));
  }
}

void Trainer::restore_losses(Checkpoint const& checkpoint) {
  Task const& task = setup_.registries.tasks.of(config_);
  if (has_comparable_losses(checkpoint, config_, task, *data_)) {
    loss_watch_.restore(checkpoint.contents().losses);
  }
  if (data_->valid.empty()) {
    valid_digest_ = checkpoint.contents().valid_dataset;
    best_measure_.metric = stored_config(checkpoint).train.best_metric;
    return;
  }
  bool const new_data = has_new_validation(checkpoint, config_, task, data_->valid.front());
  if (Measure const before{stored_config(checkpoint).train.best_metric};
      new_data || before.metric != best_measure_.metric) {
    restart_best(before, new_data);
  }
}

bool Trainer::stopped_early(TrainingState const& state) const {
  return config_.train.early_stopping > 0 && state.validations_without_improvement >= config_.train.early_stopping;
}

}  // namespace heddle
