#include "training/trainer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/host_name.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/dist/state/replica_check.hpp>
#include <heddle/io/files/file_troubles.hpp>
#include <thread>
#include <utility>

#include "measures/watched_micro_batches.hpp"
#include "run/checkpoints/base.hpp"
#include "run/checkpoints/checkpoint.hpp"
#include "run/checkpoints/checkpoint_room.hpp"
#include "run/checkpoints/teachers.hpp"
#include "training/supervision/earlier_starts.hpp"

namespace heddle {

namespace {

/// The setup, for work that the watch names so from now on.
TrainerSetup const& in_phase(TrainerSetup const& setup, char const* name) {
  setup.watch.phase(name);
  return setup;
}

}  // namespace

// Members that may refuse the configuration come first: a refused run leaves no directory.
Trainer::Trainer(TrainerSetup const& setup)
    : setup_(setup),
      config_(setup.config),
      input_(in_phase(setup_, "reading data")),
      validation_(setup_, input_.data().valid),
      output_(setup_, input_),
      model_(in_phase(setup_, "building the model"), input_.vocabulary(), output_.plan()),
      checkpoints_({config_, setup.parallel.world, setup.directory, output_.log()}),
      loss_watch_(input_.vocabulary().target, config_.optimizer.warmup_steps) {
  setup_.watch.phase("reading checkpoints");
  require_vocabulary_of_teachers(config_, input_.data().vocabulary(), setup_.parallel.world);
  for (std::string const& message : load_teachers(config_, model_.engine().teachers(), setup_.parallel.world)) {
    output_.log().info(message);
  }
  std::optional<Initialization> const initialization = find_initialization();
  std::int64_t const origin_bytes = require_room(initialization);
  output_.open_directory();
  checkpoints_.open(output_.directory(), model_.largest_tensors(),
                    broadcast_value(setup_.parallel.world, origin_bytes));
  if (auto const found = find_checkpoint()) {
    restore(*found);
  } else {
    start(initialization);
  }
  output_.start(input_, model_, validation_, state_);
}

std::optional<Initialization> Trainer::find_initialization() {
  auto const checkpoints = [this] { return CheckpointStore(checkpoints_.directory(), 2).newest_step().has_value(); };
  if (config_.train.initialize_from.empty() ||
      broadcast_value(setup_.parallel.world, setup_.is_rank_zero() && checkpoints())) {
    return std::nullopt;
  }
  Vocabulary const& vocabulary = input_.data().vocabulary();
  return std::optional<Initialization>(
      std::in_place,
      Initialization::Setup{config_, model_.whole(), vocabulary.source.model(), vocabulary.target.model()},
      setup_.parallel.world);
}

std::int64_t Trainer::require_room(std::optional<Initialization> const& initialization) {
  if (!setup_.is_rank_zero()) {
    return 0;
  }
  auto const newest = newest_contents(setup_.directory);
  std::int64_t const origin_bytes = initialization ? initialization->contents().origin_bytes()
                                    : newest       ? newest->origin_bytes()
                                                   : 0;
  if (newest && validation_.finished(newest->state)) {
    return origin_bytes;
  }
  CheckpointRoom const room = checkpoint_room(setup_.directory, config_, model_.whole(), input_.data().vocabulary(),
                                              setup_.registries.kernels, origin_bytes);
  room.require_one();
  if (!room.suffices()) {
    warn(room.describe());
  }
  return origin_bytes;
}

void Trainer::start(std::optional<Initialization> const& initialization) {
  state_.seed = config_.train.seed;
  state_.validation_pending = config_.train.validate_at_start && validation_.has_sets();
  if (initialization) {
    std::ranges::for_each(initialization->describe(),
                          [this](std::string const& message) { output_.log().info(message); });
  }
  model_.initialize(initialization ? &*initialization : nullptr);
}

std::optional<Checkpoint> Trainer::find_checkpoint() {
  std::optional<Checkpoint> found = setup_.options.resume_from
                                        ? checkpoints_.go_back(*setup_.options.resume_from, report_on_stderr)
                                        : checkpoints_.newest(report_on_stderr);
  auto const check = [&] {
    check_same_run(*found, config_, input_.data(), setup_.options.new_data);
    output_.log().info(model_.unfreeze(found->state().step));
    attach_base(*found, config_.train.initialize_from, setup_.parallel.world);
  };
  if (found) {
    check();
    try {
      found->fetch(own_slices(*found, model_.engine().parameters(), model_.engine().optimizer()),
                   setup_.parallel.world);
    } catch (Error const& error) {
      if (setup_.is_rank_zero()) {
        report_on_stderr(fmt::format("the checkpoint in memory cannot be used: {}", error.what()));
      }
      found = checkpoints_.newest_on_disk(report_on_stderr);
      if (found) {
        check();
      }
    }
  }
  return found;
}

void Trainer::restore(Checkpoint const& checkpoint) {
  auto const info = [this](std::string const& message) { output_.log().info(message); };
  std::ranges::for_each(changes_since(checkpoint, config_), info);
  std::string const& instructions = checkpoint.contents().instruction_set;
  if (!instructions.empty() && instructions != setup_.instruction_set) {
    info(
        fmt::format("note: the checkpoint was computed with the instructions {}, this run continues with {}: it will "
                    "not be bitwise the run that it would have been",
                    instructions, setup_.instruction_set));
  }
  std::ranges::for_each(model_.load(checkpoint), info);
  state_ = checkpoint.state();
  if (state_.best_checkpoint() == 0) {  // an earlier version did not record it
    state_.earlier_best = checkpoints_.linked_best(state_.step);
  }
  state_.validation_pending = state_.validation_pending && validation_.has_sets();
  info(input_.resume(checkpoint));
  stage_ = input_.stage();
  if (has_comparable_losses(checkpoint, config_, setup_.registries.tasks.of(config_), input_.data())) {
    loss_watch_.restore(checkpoint.contents().losses);
    output_.continue_line(checkpoint.contents().begun_line);
  }
  info(validation_.restore(checkpoint, state_, checkpoints_.directory()));
}

ExitCode Trainer::run(StopSignal const& signal) {
  if (finished()) {
    end_finished();
    return ExitCode::done;
  }
  output_.start_steps(model_, validation_, state_.step);
  if (state_.step > 0 && state_.best_step == state_.step && checkpoints_.committed_step() != state_.step) {
    save_checkpoint({.disk = true, .wait = true});  // it was lost on its way from memory to the disk
  }
  checkpoints_.link_best(state_.step);
  checkpoints_.protect(loss_watch_.risen_since());
  if (state_.validation_pending && !finish_validation(signal)) {
    return stop(signal);
  }
  while (!finished()) {
    if (setup_.is_rank_zero()) {
      signal.set_notice(stop_notice());
    }
    setup_.watch.phase("training step", state_.step + 1);
    if (!input_.await_next([&] { return signal.received(); })) {
      return stop(signal);
    }
    output_.record(true);
    StepReport const report = train_step();
    output_.record(false);
    after_step(report, signal);
    output_.finish_trace(finished(), state_.step);
    setup_.watch.phase("ending step", state_.step);
    auto const [stop, restore, finish] = requests(signal);
    if (restore) {
      restore_directory();
    } else if (finish) {
      setup_.watch.phase("saving step", state_.step);
      checkpoints_.finish();
    }
    if (stop && !finished()) {
      return this->stop(signal);
    }
  }
  save_final_checkpoint();
  await_commands(signal);
  end(final_state());
  return ExitCode::done;
}

StepReport Trainer::train_step() {
  output_.log().info(model_.unfreeze(state_.step));
  double const rate =
      setup_.registries.schedules.learning_rate(config_.optimizer, state_.step, config_.train.steps, state_.plateaus);
  while (true) {
    std::string const name = fmt::format("step {}", state_.step + 1);
    WorkScope const timed(&setup_.times, {WorkKind::step, name});
    MicroBatchSource const& batch = input_.next(state_.step + 1 == config_.train.steps);
    WatchedMicroBatches const watched(batch, setup_.watch);
    // Validation reports the gradients' norms.
    bool const validated = validation_.is_due(state_.step + 1, input_.exhausted());
    GradientsAfter const after = validated ? GradientsAfter::kept : GradientsAfter::zero;
    auto const outcome = finite_steps_.run([&] { return model_.engine().step(watched, state_.step, rate, after); });
    report_not_finite(outcome);
    if (!outcome.skipped) {
      ++state_.step;
      state_.tokens += batch.tokens().all;
      return {.step = state_.step,
              .result = outcome.result,
              .learning_rate = rate,
              .tokens = batch.tokens(),
              .epochs = input_.progress().epochs,
              .corpus_epochs = input_.corpus_epochs(),
              .corpus_losses = input_.corpus_losses(outcome.result.group_nll)};
    }
  }
}

void Trainer::report_not_finite(FiniteSteps::Outcome const& outcome) {
  if (!outcome.repeated) {
    return;
  }
  output_.count_repeated(outcome.skipped);
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
  output_.log().notice(
      outcome.skipped
          ? fmt::format("step {}: {}, twice: this batch is skipped", readable_count(state_.step + 1), found)
          : fmt::format("step {}: was not finite, and is finite when computed again", readable_count(state_.step + 1)));
}

void Trainer::after_step(StepReport const& report, StopSignal const& signal) {
  auto const validation = validation_.is_due(state_.step, input_.exhausted()) ? validate(signal) : std::nullopt;
  output_.step(report, validation);
  if (setup_.is_rank_zero()) {
    if (auto const rise = loss_watch_.add(report.step, report.result.loss)) {
      output_.log().warn(*rise);
    }
    checkpoints_.protect(loss_watch_.risen_since());
  }
  if (validation) {
    take_validation(*validation);
  }
  report_stage();
  report_commands();
  report_file_troubles();
  std::int64_t const check_every = config_.train.check_every_steps;
  if (check_every > 0 && state_.step % check_every == 0) {
    check_replicas(setup_.parallel, model_.engine().parameters(), &model_.engine().optimizer());
  }
  auto const due = [&](std::int64_t steps) { return steps > 0 && state_.step % steps == 0; };
  if (!state_.validation_pending) {  // else the run stops now, with a checkpoint
    bool const best = validation && state_.best_step == state_.step;
    save_checkpoint(
        {.disk = best || due(config_.checkpoint.every_steps), .memory = due(config_.checkpoint.memory_every_steps)});
  }
}

std::optional<ValidationResult> Trainer::validate(StopSignal const& signal) {
  output_.pause();
  setup_.watch.phase("validating after step", state_.step);
  auto result = validation_.validate(model_, state_, signal);
  if (!result) {
    output_.log().notice(
        fmt::format("the validation after step {} is left to the start that resumes", readable_count(state_.step)));
  }
  output_.resume();
  return result;
}

void Trainer::report_stage() {
  if (input_.stage() == stage_) {
    return;
  }
  stage_ = input_.stage();
  validation_.restart_stopping(state_);  // other data
  if (std::string const name = input_.stage_name(); !name.empty()) {
    output_.log().info(fmt::format("stage {} starts after step {}", name, readable_count(state_.step)));
  }
}

void Trainer::take_validation(ValidationResult const& validation) {
  report_validation(validation);
  if (input_.stalled(state_)) {
    input_.end_stage();
  }
}

void Trainer::report_validation(ValidationResult const& validation) {
  if (!setup_.is_rank_zero()) {
    return;
  }
  for (std::string const& warning : validation_.warnings(validation, state_.step)) {
    output_.log().warn(warning);
  }
  if (validation_.stopped_early(state_)) {
    output_.log().info(describe_early_stopping(validation_.without_better(state_)));
  }
}

void Trainer::report_commands() {
  for (CommandResult& result : validation_.finished_commands()) {
    if (result.problem.empty()) {
      output_.validation(result.step, {.values = {std::move(result.measured)}});
    } else {
      output_.log().warn(fmt::format("step {}: {}", readable_count(result.step), result.problem));
    }
  }
}

void Trainer::report_file_troubles() {
  for (std::string const& trouble : take_file_troubles()) {
    if (setup_.is_rank_zero()) {
      output_.log().warn(trouble);
    } else {
      warn(fmt::format("rank {} on {}: {}", setup_.parallel.world.rank(), host_name(), trouble));
    }
  }
}

void Trainer::await_commands(StopSignal const& signal) {
  setup_.watch.phase("waiting for validation commands after step", state_.step);
  report_commands();
  if (validation_.commands_left() > 0) {
    output_.log().info(fmt::format(
        "waiting for {}", counted(static_cast<std::int64_t>(validation_.commands_left()), "validation command")));
  }
  while (validation_.commands_left() > 0 && !signal.received()) {
    setup_.watch.heartbeat();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    report_commands();
  }
  cancel_commands();
}

void Trainer::cancel_commands() {
  report_commands();
  if (validation_.commands_left() > 0) {
    output_.log().notice("note: a stop signal came before the end of validation commands: their numbers are missing");
  }
  validation_.cancel_commands();
}

bool Trainer::finish_validation(StopSignal const& signal) {
  if (setup_.is_rank_zero()) {
    signal.set_notice(stop_notice());
  }
  auto validation = validate(signal);
  if (!validation) {
    return false;
  }
  validation->norms.gradients.clear();  // they were not kept
  output_.validation(state_.step, *validation);
  if (state_.step > 0) {
    take_validation(*validation);
    report_stage();
    save_checkpoint({.disk = true, .again = true, .wait = true});
  } else {
    report_validation(*validation);
  }
  return true;
}

Trainer::Requests Trainer::requests(StopSignal const& signal) {
  constexpr std::chrono::seconds between_looks{1};  // each is a question to the file system's server
  bool gone = false;
  auto const now = std::chrono::steady_clock::now();
  if (RunDirectory const* const directory = output_.directory(); directory != nullptr && now >= next_look_) {
    gone = !directory->in_place();
    next_look_ = now + between_looks;
  }
  std::array<std::int32_t, 3> found{signal.received() ? 1 : 0, gone ? 1 : 0, checkpoints_.writes() ? 1 : 0};
  all_reduce_values<std::int32_t>(setup_.parallel.world, found, ReduceOp::max);
  return {found[0] != 0, found[1] != 0, checkpoints_.in_flight() && found[2] == 0};
}

void Trainer::restore_directory() {
  output_.restore_directory(state_.step);
  checkpoints_.start_over(output_.directory());
  save_checkpoint({.disk = true, .wait = true});
}

void Trainer::save_checkpoint(CheckpointKeeper::Request const& asked) {
  auto const request = checkpoints_.remaining(asked, state_.step);
  if (!request.disk && !request.memory) {
    return;
  }
  setup_.watch.phase("saving step", state_.step);
  output_.pause();
  if (setup_.is_rank_zero()) {
    state_.seconds = output_.seconds();
  }
  // Diverged parameters must not be kept.
  check_replicas(setup_.parallel, model_.engine().parameters(), &model_.engine().optimizer());
  CheckpointContents contents;
  contents.state = state_;
  contents.config = to_toml(config_);
  contents.source_model = input_.data().vocabulary().source.model();
  contents.target_model = input_.data().vocabulary().target.model();
  contents.dataset = input_.data().digest();
  set_data_cursor(contents, input_.cursor());
  contents.instruction_set = setup_.instruction_set;
  contents.valid_dataset = validation_.digest();
  contents.losses = loss_watch_.history();
  contents.further_best = validation_.further_best();
  contents.begun_line = output_.begun_line();
  model_.describe_in(contents);
  ModelStream tensors = model_.stream();
  checkpoints_.keep(contents, tensors, request);
  output_.resume();
}

void Trainer::save_final_checkpoint() {
  setup_.watch.phase("saving step", state_.step);
  checkpoints_.finish();
  save_checkpoint({.disk = true, .wait = true});
  checkpoints_.close();
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

ExitCode Trainer::stop(StopSignal const& signal) {
  output_.finish_trace(true, state_.step);
  save_final_checkpoint();
  cancel_commands();
  end("stopped by " + signal.name());
  return ExitCode::requeue;
}

void Trainer::end(std::string const& how) {
  report_file_troubles();
  setup_.watch.finish("reporting after step", state_.step);
  if (auto const useless = loss_watch_.at_end(); useless && setup_.is_rank_zero() && setup_.times.seconds().steps > 0) {
    output_.log().warn(*useless);
  }
  SampleTotals const& totals = input_.totals();
  output_.end(outcome(how), model_, static_cast<double>(totals.tokens) / static_cast<double>(totals.usable));
}

void Trainer::end_finished() {
  setup_.watch.finish("reporting after step", state_.step);
  save_final_checkpoint();
  checkpoints_.link_best(state_.step);
  output_.end_finished(outcome(final_state()), model_);
}

Ending Trainer::outcome(std::string const& how) const {
  return {.state = how,
          .step = state_.step,
          .steps = config_.train.steps,
          .data_ended = input_.exhausted(),
          .of_stream = is_stream(config_.data),
          .tokens = state_.tokens,
          .seconds = output_.seconds(),
          .best_step = state_.best_step,
          .best_measure = validation_.best_measure(),
          .best_value = state_.best_value,
          .best_values = output_.best_values(),
          .directory = setup_.directory,
          .checkpoint = checkpoints_.directory() / checkpoint_directory_name(checkpoints_.committed_step()),
          .command = job_requeues_itself() ? "" : setup_.resume_command,
          .plugins = config_.plugins.paths,
          .from_text = input_.data().has_lines()};
}

}  // namespace heddle
