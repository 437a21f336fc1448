#include "training/run_output.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <heddle/core/base/cpu_level.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/model/layout.hpp>
#include <heddle/dist/mpi/mpi.hpp>
#include <heddle/dist/trace/trace_file.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <memory>
#include <ostream>
#include <utility>

#include "measures/attention_maps.hpp"
#include "run/directory/json_text.hpp"
#include "run/directory/run_progress.hpp"
#include "run/processes/binding.hpp"
#include "training/supervision/earlier_starts.hpp"

namespace heddle {

namespace {

/// A note on a precision that costs time in place of saving it; "" where there is none.
std::string note_on_precision(TrainConfig const& train) {
  bool const slow = train.precision == Precision::bfloat16 && kernel_memory_space() == MemorySpace::host &&
                    usable_cpu_level() < CpuLevel::v4;
  return slow ? fmt::format("train.precision = \"bfloat16\": {} has no instructions for it; \"float32\" is faster",
                            name_of(usable_cpu_level()))
              : "";
}

/// The cores of the ranks, and how near to each other those of the groups with the most traffic are; "" for one rank.
/// Collective over `parallel.world`; the result is rank 0's.
std::string describe_cores_of(ParallelState const& parallel, std::vector<std::string> const& hosts) {
  if (parallel.world.size() == 1) {
    return "";
  }
  std::vector<RankCores> const ranks = gather_rank_cores(parallel.world, hosts);
  if (parallel.world.rank() > 0) {
    return "";
  }
  try {
    return "binding: " + describe_binding(ranks, node_topology(), inner_groups(parallel.mesh.shape()));
  } catch (Error const& error) {  // this line is not worth a run
    return fmt::format("binding: unknown ({})", error.what());
  }
}

}  // namespace

RunOutput::RunOutput(TrainerSetup const& setup, RunInput const& input)
    : setup_(setup),
      config_(setup.config),
      log_(setup.is_rank_zero(), isatty(STDOUT_FILENO) == 1 && !launched_by_mpi(), setup.options.verbosity,
           earlier_starts() > 0 && std::filesystem::exists(setup.directory / "log.txt")),
      report_{announce(input), input.largest_packs()} {
  log_.header(report_.mesh().line);
  log_.header(describe_cores_of(setup_.parallel, report_.hosts()));
  log_.notice(report_.mesh().warning);
  log_.debug(report_.mesh().table + report_.memory_table());
  log_.header(input.staging());
  for (std::string const& note :
       keys_without_effect(config_, setup_.parallel.mesh, setup_.registries.tasks.of(config_))) {
    log_.header("note: " + note);
  }
  if (std::string const slow = note_on_precision(config_.train); !slow.empty()) {
    log_.header("note: " + slow);
  }
  if (std::string const tied = tied_tables(model(), input.vocabulary()); !tied.empty()) {
    log_.header("note: " + tied);
  }
  if (setup_.is_rank_zero()) {
    auto const warn = [this](std::string const& warning) { log_.header_warning(warning); };
    std::ranges::for_each(warnings_about(config_), warn);
    std::ranges::for_each(input.warnings(), warn);
  }
}

RunReport::Setup RunOutput::announce(RunInput const& input) {
  log_.debug("== " + setup_.command);
  log_.print_verbose(to_toml(config_));
  log_.header(describe_changes(config_));
  return {.config = config_,
          .registries = setup_.registries,
          .parallel = setup_.parallel,
          .vocabulary = input.vocabulary(),
          .command = setup_.command};
}

void RunOutput::lock_directory() {
  bool noted = false;
  directory_.emplace(RunDirectory::open(setup_.directory, [&] {
    if (!std::exchange(noted, true)) {
      log_.notice(
          fmt::format("{} is on a file system without locks: waiting to see whether another process trains in it",
                      setup_.directory.string()));
    }
    setup_.watch.heartbeat();
  }));
}

void RunOutput::open_directory() {
  if (setup_.is_rank_zero()) {
    lock_directory();
    log_.open(*directory_);
  }
}

void RunOutput::restore_directory(std::int64_t step) {
  if (!setup_.is_rank_zero()) {
    return;
  }
  log_.notice(
      fmt::format("{} was removed or replaced while training: it is made again, with a checkpoint of step {}; what "
                  "was in it is not",
                  setup_.directory.string(), readable_count(step)));
  directory_.reset();  // its lock may still be the one on the directory's name
  lock_directory();
  directory_->replace_file("config.toml", to_toml(config_));
  training_log_->reopen(*directory_);
  log_.open(*directory_);
}

void RunOutput::start(RunInput const& input, RunModel const& model, RunValidation const& validation,
                      TrainingState const& state) {
  if (!setup_.is_rank_zero()) {
    return;
  }
  // A start that makes no step leaves the configuration of the run as it is.
  if (!validation.finished(state) || !std::filesystem::exists(setup_.directory / "config.toml")) {
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
  std::int64_t const left_out = input.totals().left_out;
  log_.header(fmt::format("{}, training on {}{}", model.describe(), input.mixture().describe(),
                          left_out > 0 ? fmt::format(" ({}{} left out: longer than model.max_length)",
                                                     input.totals().estimated ? "about " : "", readable_count(left_out))
                                       : ""));
  std::int64_t const micro_batches = config_.train.batch_tokens / config_.train.micro_batch_tokens;
  if (config_.train.deterministic && micro_batches < setup_.parallel.data.size()) {
    log_.header(fmt::format(
        "note: with train.deterministic a step has about {} micro-batches, fewer than the {} data ranks; lower "
        "train.micro_batch_tokens so that every rank has some",
        readable_count(micro_batches), readable_count(setup_.parallel.data.size())));
  }
  if (auto const reason = unmeasured_attention(setup_.parallel, config_.parallel); reason && validation.has_sets()) {
    log_.header(
        fmt::format("note: attention_entropy is not measured: {}; `heddle inspect --html` draws attention from a "
                    "checkpoint of any layout",
                    *reason));
  }
  std::int64_t const restarts = earlier_starts();
  log_.info(fmt::format(
      "{} in {}{}", state.step > 0 ? fmt::format("resuming after step {}", readable_count(state.step)) : "starting",
      setup_.directory.string(),
      restarts > 0 ? fmt::format(" (restart {}, ranks: {})", restarts, setup_.parallel.world.size()) : ""));
  training_log_.emplace(TrainingLog::open(*directory_,
                                          {.step = state.step,
                                           .steps = config_.train.steps,
                                           .tokens = state.tokens,
                                           .seconds = state.seconds,
                                           .every = config_.train.log_every,
                                           .measures = validation.measures(),
                                           .valid_datasets = validation.digests(),
                                           .corpus_tags = input.corpus_tags(),
                                           .parallel = setup_.parallel,
                                           .begun_line = begun_line_},
                                          log_));
}

void RunOutput::start_steps(RunModel const& model, RunValidation const& validation, std::int64_t step) {
  report_.set_parameters(model.whole().elements());
  if (setup_.is_rank_zero()) {
    report_.compare_with(setup_.directory / report_name, step);
    report_.set_validation(validation.best_measure(), best_values());
    write_report();
  }
  tracing_ = setup_.trace != nullptr && setup_.options.trace > 0;
}

void RunOutput::write_report() const {
  directory_->replace_file(report_name, json_text(report_.json()) + "\n");
}

std::vector<BestValue> RunOutput::best_values() const {
  return training_log_ ? training_log_->best_values() : std::vector<BestValue>();
}

void RunOutput::pause() {
  if (training_log_) {
    training_log_->pause();
  }
}

void RunOutput::resume() {
  if (training_log_) {
    training_log_->resume();
  }
}

void RunOutput::step(StepReport const& report, std::optional<ValidationResult> const& validation) {
  report_.count_step(report.step, report.tokens);
  if (training_log_) {
    training_log_->step(report, validation);
  }
}

void RunOutput::validation(std::int64_t step, ValidationResult const& validation) {
  if (training_log_) {
    training_log_->validation(step, validation);
  }
}

void RunOutput::count_repeated(bool skipped) {
  if (training_log_) {
    training_log_->count_repeated(skipped);
  }
}

void RunOutput::record(bool on) {
  if (tracing_) {
    setup_.trace->record(on);
  }
}

void RunOutput::finish_trace(bool last_step, std::int64_t step) {
  StepTimes::Seconds const made = setup_.times.seconds();
  if (!tracing_ || !(last_step || made.steps >= setup_.options.trace)) {
    return;
  }
  setup_.watch.phase("writing the trace after step", step);
  tracing_ = false;
  std::filesystem::path const path = setup_.directory / "trace.json";
  std::unique_ptr<std::ostream> file;
  try {
    if (setup_.is_rank_zero()) {
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

void RunOutput::conclude(Ending const& ending, RunModel const& model) {
  if (setup_.is_rank_zero()) {
    report_.set_parameters(model.whole().elements());
    report_.conclude(ending);
    write_report();
  }
}

void RunOutput::end(Ending const& ending, RunModel& model, double typical_length) {
  if (setup_.times.seconds().steps == 0) {
    conclude(ending, model);
    log_.notice(describe_end(ending, report_.model(), nullptr));
    return;
  }
  std::string const tables = report_.end(model.engine(), setup_.execution, setup_.times, typical_length, ending);
  if (setup_.is_rank_zero()) {
    log_.debug(tables + describe_speed(report_.json()));
    write_report();
    log_.notice(describe_end(ending, report_.model(), &report_.json()));
  }
}

void RunOutput::end_finished(Ending const& ending, RunModel const& model) {
  // `heddle run` reads the outcome in the report. A report that has it already has the figures of its steps, too.
  if (setup_.is_rank_zero() && reported_outcome(setup_.directory, {}) != ExitCode::done) {
    conclude(ending, model);
  }
  if (setup_.options.trace > 0) {
    log_.notice("note: no step was made, so there is nothing to trace");
  }
  log_.notice(describe_finished(ending, report_.model()));
}

}  // namespace heddle
