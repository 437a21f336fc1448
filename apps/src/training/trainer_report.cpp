#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/core/parameters/update_rules.hpp>
#include <heddle/dist/trace/trace_file.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <memory>
#include <ostream>

#include "measures/attention_maps.hpp"
#include "run/checkpoints/best_checkpoints.hpp"
#include "run/checkpoints/checkpoint.hpp"
#include "run/directory/json_text.hpp"
#include "run/directory/run_progress.hpp"
#include "run/report/run_text.hpp"
#include "trainer.hpp"
#include "training/supervision/earlier_starts.hpp"

// The trainer's messages, and its reports at the start and at the end of a run.
namespace heddle {

namespace {

/// "12,345 parameters (2,345 of them frozen)".
std::string describe_parameters(WholeModel const& model, OptimizerConfig const& optimizer) {
  std::int64_t frozen = 0;
  model.for_each_parameter([&](ParameterDescription const& parameter) {
    UpdateRule const rule = update_rule(optimizer, parameter.name);
    frozen += rule.frozen || rule.unfreeze_at > 0 ? parameter.placement.global_shape.size() : 0;
  });
  return fmt::format("{} parameters{}", readable_count(model.elements()),
                     frozen > 0 ? fmt::format(" ({} of them frozen)", readable_count(frozen)) : "");
}

}  // namespace

void Trainer::print_warnings() {
  if (!is_rank_zero()) {
    return;
  }
  for (std::string const& warning : warnings_about(config_)) {
    log_.header_warning(warning);
  }
  std::int64_t const longest = config_.model.max_length;
  std::vector<std::string> warnings = warnings_about(reader_->mixture(), longest);
  for (ValidationSet const& set : data_->valid) {
    std::string const warning = set.samples->warning();
    if (!set.tag.empty() && std::ranges::count(warnings, warning) == 0) {  // it is said once of a corpus's own tag
      warnings.push_back(warning);
    }
    warnings.push_back(left_out_warning(set.key(), set.samples->totals(0, longest), longest));
  }
  std::ranges::for_each(warnings, [this](std::string const& warning) { log_.header_warning(warning); });
}

void Trainer::print_start() {
  // A start that makes no step leaves the configuration of the run as it is.
  if (!finished() || !std::filesystem::exists(setup_.directory / "config.toml")) {
    directory_->replace_file("config.toml", to_toml(config_));
  }
  if (!setup_.kernels.file.empty()) {
    directory_->replace_file("kernels.json", setup_.kernels.file);
  }
  for (std::string const& note : setup_.kernels.notes) {
    log_.header("note: " + note);
  }
  if (!directory_->locked()) {
    log_.header(fmt::format("note: {} is on a file system without locks: the file .lease there keeps other runs out",
                            setup_.directory.string()));
  }
  log_.header(fmt::format(
      "{}, training on {}{}", describe_parameters(*whole_model_, config_.optimizer), reader_->mixture().describe(),
      reader_->totals().left_out > 0
          ? fmt::format(" ({} left out: longer than model.max_length)", readable_count(reader_->totals().left_out))
          : ""));
  std::int64_t const micro_batches = config_.train.batch_tokens / config_.train.micro_batch_tokens;
  if (config_.train.deterministic && micro_batches < setup_.parallel.data.size()) {
    log_.header(fmt::format(
        "note: with train.deterministic a step has about {} micro-batches, fewer than the {} data ranks; lower "
        "train.micro_batch_tokens so that every rank has some",
        readable_count(micro_batches), readable_count(setup_.parallel.data.size())));
  }
  if (auto const reason = unmeasured_attention(setup_.parallel); reason && !data_->valid.empty()) {
    log_.header(
        fmt::format("note: attention_entropy is not measured: {}; `heddle inspect --html` draws attention from a "
                    "checkpoint of any layout",
                    *reason));
  }
  std::int64_t const restarts = earlier_starts();
  log_.info(fmt::format(
      "{} in {}{}", state_.step > 0 ? fmt::format("resuming after step {}", readable_count(state_.step)) : "starting",
      setup_.directory.string(),
      restarts > 0 ? fmt::format(" (restart {}, ranks: {})", restarts, setup_.parallel.world.size()) : ""));
}

void Trainer::begin_report() {
  report_->set_parameters(whole_model_->elements());
  if (is_rank_zero()) {
    report_->compare_with(setup_.directory / report_name, state_.step);
    report_->set_validation(best_measure_, training_log_->best_values());
    write_report();
  }
  tracing_ = setup_.trace != nullptr && setup_.options.trace > 0;
}

void Trainer::write_report() const {
  directory_->replace_file(report_name, json_text(report_->json()) + "\n");
}

std::string Trainer::stop_notice() const {
  std::int64_t const saved = std::max(checkpoints_.committed_step(), checkpoints_.memory_step());
  std::string const newest =
      saved < 0 ? "until then there is none, and the next start trains from scratch"
                : fmt::format("the newest one until then is of step {} in {}; the next start resumes from it",
                              readable_count(saved),
                              checkpoints_.committed_step() == saved ? checkpoints_.directory().string() : "memory");
  return state_.validation_pending
             ? fmt::format("in the validation after step {}: it is left to the next start; {}",
                           readable_count(state_.step), newest)
             : fmt::format("in step {}: a checkpoint is written after this step if there is time; {}",
                           readable_count(state_.step + 1), newest);
}

void Trainer::report_not_finite(FiniteSteps::Outcome const& outcome) {
  if (!outcome.repeated) {
    return;
  }
  if (is_rank_zero()) {
    training_log_->count_repeated(outcome.skipped);
  }
  StepResult const& result = outcome.result;
  std::string const found = fmt::format("the {} is {}", std::isfinite(result.loss) ? "gradient's norm" : "loss",
                                        std::isfinite(result.loss) ? result.gradient_norm : result.loss);
  if (finite_steps_.too_many_skipped()) {
    throw Error(fmt::format("step {}: {}, for {} batches in a row; nothing was changed by them. A lower "
                            "optimizer.learning_rate, a longer warm-up or optimizer.clip_norm may help; {}",
                            readable_count(state_.step + 1), found, FiniteSteps::max_skipped,
                            checkpoints_.committed_step() < 0
                                ? "there is no checkpoint yet"
                                : fmt::format("the last checkpoint is of step {}; --resume-from STEP "
                                              "goes back to an earlier one",
                                              readable_count(checkpoints_.committed_step()))),
                ExitCode::loss_not_finite);
  }
  if (is_rank_zero()) {
    log_.notice(outcome.skipped
                    ? fmt::format("step {}: {}, twice: this batch is skipped", readable_count(state_.step + 1), found)
                    : fmt::format("step {}: was not finite, and is finite when computed again",
                                  readable_count(state_.step + 1)));
  }
}

void Trainer::log(CheckpointKeeper::Results const& results) {
  for (CommitResult const& result : results) {
    for (std::string const& note : result.notes) {
      log_.notice(note);
    }
    log_.info(result.times);
  }
}

void Trainer::finish_trace(bool last_step) {
  StepTimes::Seconds const made = setup_.times.seconds();
  if (!tracing_ || !(last_step || made.steps >= setup_.options.trace)) {
    return;
  }
  setup_.watch.phase("writing the trace after step", state_.step);
  tracing_ = false;
  std::filesystem::path const path = setup_.directory / "trace.json";
  std::unique_ptr<std::ostream> file;
  try {
    if (is_rank_zero()) {
      directory_->replace_file(path.filename().string(), "");  // whatever stood there
      file = open_output(path, OutputMode::append);
    }
  } catch (Error const&) {
    file = std::make_unique<std::ostream>(nullptr);  // which fails in write_trace, on every rank
  }
  try {
    write_trace(setup_.parallel.world, *setup_.trace, setup_.clock_offset, file.get());
    log_.info(fmt::format("the trace of {} step{} is in {}", readable_count(made.steps), made.steps == 1 ? "" : "s",
                          path.string()));
  } catch (Error const& error) {
    log_.notice(fmt::format("note: {}: {}", path.string(), error.what()));
  }
}

Ending Trainer::outcome(std::string const& how) const {
  return {.state = how,
          .step = state_.step,
          .steps = config_.train.steps,
          .tokens = state_.tokens,
          .seconds = training_log_ ? training_log_->seconds() : 0,
          .best_step = state_.best_step,
          .best_measure = best_measure_,
          .best_value = state_.best_value,
          .best_values = training_log_ ? training_log_->best_values() : std::vector<BestValue>(),
          .directory = setup_.directory,
          .checkpoint = checkpoints_.directory() / checkpoint_directory_name(checkpoints_.committed_step()),
          .command = job_requeues_itself() ? "" : setup_.resume_command,
          .plugins = config_.plugins.paths,
          .from_text = data_->has_lines()};
}

void Trainer::restart_best(Measure const& before, bool new_data) {
  BestValue best{best_measure_};
  if (!new_data && is_rank_zero()) {
    best = best_with_checkpoint(checkpoints_.directory(), best_measure_, valid_digest_, state_.step);
  }
  best.step = broadcast_value(setup_.parallel.world, best.step);
  best.value = broadcast_value(setup_.parallel.world, best.value);
  std::string const reason =
      new_data ? fmt::format("{} is another validation set than before, or has another tag or other masks",
                             config_.data.valid)
               : fmt::format("train.best_metric = \"{}\" decides now", best_measure_.metric);
  if (best.step > 0) {
    log_.info(
        fmt::format("note: {}: the best value whose checkpoint is there is {} {} at step {}; early stopping "
                    "starts again",
                    reason, best_measure_.name(), best_measure_.number(best.value), readable_count(best.step)));
  } else if (state_.best_step > 0) {
    log_.info(
        fmt::format("note: {}: the best {} so far, {} at step {}, does not count, and early stopping starts "
                    "again; its checkpoint stays the best one until there is a new one",
                    reason, before.name(), before.number(state_.best_value), readable_count(state_.best_step)));
  }
  state_.earlier_best = best.step > 0 ? 0 : state_.best_checkpoint();
  state_.best_value = best.value;
  state_.best_step = best.step;
  state_.validations_without_improvement = 0;
}

void Trainer::end_finished() {
  setup_.watch.finish("reporting after step", state_.step);
  save_final_checkpoint();
  link_best();
  Ending const ending = outcome(final_state());
  // `heddle run` reads the outcome in the report. A report that has it already has the figures of its steps, too.
  if (is_rank_zero() && reported_outcome(setup_.directory, {}) != ExitCode::done) {
    conclude_report(ending);
  }
  if (setup_.options.trace > 0) {
    log_.notice("note: no step was made, so there is nothing to trace");
  }
  log_.notice(describe_finished(ending, report_->model()));
}

void Trainer::conclude_report(Ending const& ending) {
  if (is_rank_zero()) {
    report_->set_parameters(whole_model_->elements());
    report_->conclude(ending);
    write_report();
  }
}

void Trainer::print_end(std::string const& how) {
  setup_.watch.finish("reporting after step", state_.step);
  if (setup_.times.seconds().steps == 0) {
    Ending const ending = outcome(how);
    conclude_report(ending);
    log_.notice(describe_end(ending, report_->model(), nullptr));
    return;
  }
  auto const& totals = reader_->totals();
  double const typical_length = static_cast<double>(totals.tokens) / static_cast<double>(totals.usable);
  Ending const ending = outcome(how);
  std::string const tables = report_->end(*engine_, setup_.execution, setup_.times, typical_length, ending);
  if (is_rank_zero()) {
    log_.debug(tables + describe_speed(report_->json()));
    write_report();
    if (auto const useless = loss_watch_.at_end()) {
      log_.warn(*useless);
    }
    log_.notice(describe_end(ending, report_->model(), &report_->json()));
  }
}

}  // namespace heddle
