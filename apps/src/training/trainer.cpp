#include "trainer.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/layers/low_rank.hpp>
#include <heddle/core/model/layout.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/core/parameters/update_rules.hpp>
#include <heddle/core/training/optimizer.hpp>
#include <heddle/dist/mpi/mpi.hpp>
#include <heddle/dist/planning/available_memory.hpp>
#include <heddle/dist/state/replica_check.hpp>
#include <heddle/io/samples/run_packs.hpp>
#include <heddle/io/samples/training_data.hpp>
#include <set>
#include <utility>

#include "measures/watched_micro_batches.hpp"
#include "run/checkpoints/base.hpp"
#include "run/checkpoints/checkpoint.hpp"
#include "run/checkpoints/checkpoint_room.hpp"
#include "training/supervision/earlier_starts.hpp"

namespace heddle {

std::unique_ptr<Trainer> Trainer::create(TrainerSetup const& setup) {
  std::unique_ptr<Trainer> trainer(new Trainer(setup));
  // Steps that may refuse the configuration come first: a refused run leaves no directory.
  setup.watch.phase("reading data");
  trainer->open_data();
  trainer->announce();
  setup.watch.phase("building the model");
  trainer->build_model();
  setup.watch.phase("reading checkpoints");
  trainer->plan_initialization();
  trainer->require_room();
  trainer->take_directory();
  trainer->resume_or_start();
  trainer->open_log();
  return trainer;
}

Trainer::Trainer(TrainerSetup const& setup)
    : setup_(setup),
      config_(setup.config),
      checkpoints_({config_, setup.parallel.world, setup.directory}),
      log_(setup.parallel.world.rank() == 0, isatty(STDOUT_FILENO) == 1 && !launched_by_mpi(), setup.options.verbosity,
           earlier_starts() > 0 && std::filesystem::exists(setup.directory / "log.txt")) {}

void Trainer::open_data() {
  ModelDescription const model = describe_model(config_.model, setup_.registries.layers);
  Task const& task = setup_.registries.tasks.of(config_);
  data_ = open_training_data(config_);
  make_validation_samples(config_, task, model.needs_prefixes(), *data_);
  for (ValidationSet const& set : data_->valid) {
    if (all_samples(*set.samples, config_.model.max_length).samples.empty()) {
      throw DataError(
          fmt::format("{}: every sample is longer than model.max_length = {}: there is nothing to validate "
                      "on; set train.validate_every = 0 or another {}",
                      set.dataset.name(), config_.model.max_length, set.key()));
    }
  }
  if (!data_->valid.empty()) {
    valid_digest_ = data_->valid.front().digest();
    best_measure_ = best_measure(config_, setup_.registries);
  }
  ParallelState const& parallel = setup_.parallel;
  BatchPlanner::Limits const limits{.batch_tokens = config_.train.batch_tokens, .max_length = config_.model.max_length};
  // Ranks with one data coordinate train on the same samples.
  reader_.emplace(
      BatchPlanner(
          training_mixture(config_, task, *data_, {.prefixes = model.needs_prefixes(), .fields = model.fields()}),
          limits, config_.train.seed),
      micro_batch_cut(config_.train, parallel), parallel.group(parallel.mesh.shape().axes_except(MeshAxis::data)));
  require_long_enough(config_, model, parallel.mesh, parallel.world.size(), reader_->totals().longest);
  loss_watch_ = LossWatch(vocabulary_sizes(data_->train.front()).target, config_.optimizer.warmup_steps);
}

void Trainer::announce() {
  ParallelState const& parallel = setup_.parallel;
  ModelDescription const model = describe_model(config_.model, setup_.registries.layers);
  VocabularySizes const vocabulary = vocabulary_sizes(data_->train.front());
  log_.debug("== " + setup_.command);
  log_.print_verbose(to_toml(config_));
  log_.header(describe_changes(config_));
  bool const prefixes = model.needs_prefixes();
  bool const joined = setup_.registries.tasks.of(config_).pairs(prefixes) == PairForm::joined;
  RunPacks const packs({.config = config_,
                        .training = reader_->mixture(),
                        .validation = validation_samples(*data_),
                        .prefixes = prefixes || joined,
                        .sequences = data_->has_lines()});
  report_.emplace(RunReport::Setup{.config = config_,
                                   .registries = setup_.registries,
                                   .parallel = parallel,
                                   .vocabulary = vocabulary,
                                   .command = setup_.command},
                  packs.largest(config_, parallel.mesh));
  log_.header(report_->mesh().line);
  log_.notice(report_->mesh().warning);
  log_.debug(report_->mesh().table + report_->memory_table());
  for (std::string const& note : keys_without_effect(config_, parallel.mesh, setup_.registries.tasks.of(config_))) {
    log_.header("note: " + note);
  }
  if (std::string const tied = tied_tables(model, vocabulary); !tied.empty()) {
    log_.header("note: " + tied);
  }
  print_warnings();
  if (config_.train.reserve_memory && kernel_memory_space() == MemorySpace::host) {
    require_memory(parallel.world, report_->plan(), available_memory());
  }
}

void Trainer::build_model() {
  engine_.emplace(TrainingEngine::Setup{.config = config_,
                                        .registries = setup_.registries,
                                        .parallel = setup_.parallel,
                                        .execution = setup_.execution,
                                        .vocabulary = vocabulary_sizes(data_->train.front()),
                                        .dtype = dtype_of(config_.train.precision),
                                        .observer = &setup_.times});
  if (config_.train.reserve_memory) {
    engine_->pipeline().reserve(report_->plan().pipeline);
  }
  whole_model_.emplace(WholeModel::gather(setup_.parallel, engine_->parameters()));
  std::vector<std::string> const names = whole_model_->names();
  require_patterns_match(config_.optimizer, names);
  require_targets_match(config_.model.adapter, names);
  require_some_trained(config_.optimizer, names);
}

void Trainer::plan_initialization() {
  auto const checkpoints = [this] { return CheckpointStore(checkpoints_.directory(), 2).newest_step().has_value(); };
  if (config_.train.initialize_from.empty() ||
      broadcast_value(setup_.parallel.world, is_rank_zero() && checkpoints())) {
    return;
  }
  Vocabulary const& vocabulary = data_->vocabulary();
  initialization_.emplace(
      Initialization::Setup{config_, *whole_model_, vocabulary.source.model(), vocabulary.target.model()},
      setup_.parallel.world);
}

void Trainer::require_room() {
  if (!is_rank_zero()) {
    return;
  }
  auto const newest = newest_contents(setup_.directory);
  origin_bytes_ = initialization_ ? initialization_->contents().origin_bytes() : newest ? newest->origin_bytes() : 0;
  if (newest && finished(newest->state)) {
    return;
  }
  CheckpointRoom const room = checkpoint_room(setup_.directory, config_, *whole_model_, data_->vocabulary(),
                                              setup_.registries.kernels, origin_bytes_);
  room.require_one();
  if (!room.suffices()) {
    warn(room.describe());
  }
}

void Trainer::take_directory() {
  if (is_rank_zero()) {
    open_directory();
    log_.open(*directory_);
  }
}

void Trainer::open_directory() {
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

void Trainer::resume_or_start() {
  auto const report = [this](std::string const& note) { log_.notice(note); };
  checkpoints_.open(directory_ ? &*directory_ : nullptr, largest_tensors(),
                    broadcast_value(setup_.parallel.world, origin_bytes_), report);
  if (auto const found = find_checkpoint()) {
    restore(*found);
  } else {
    state_.seed = config_.train.seed;
    state_.validation_pending = config_.train.validate_at_start && !data_->valid.empty();
    engine_->parameters().initialize(config_.train.seed);
    if (initialization_) {
      std::ranges::for_each(initialization_->describe(), [this](std::string const& message) { log_.info(message); });
      initialization_->apply(engine_->parameters());
      origin_ = initialization_->contents().origin;
      if (config_.model.adapter.rank > 0) {
        base_ = initialization_->base();
      }
    }
  }
  initialization_.reset();
}

std::optional<Checkpoint> Trainer::find_checkpoint() {
  std::optional<Checkpoint> found = setup_.options.resume_from
                                        ? checkpoints_.go_back(*setup_.options.resume_from, report_on_stderr)
                                        : checkpoints_.newest(report_on_stderr);
  auto const check = [&] {
    check_same_run(*found, config_, *data_, setup_.options.new_data);
    unfreeze(found->state().step);
    attach_base(*found, config_.train.initialize_from, setup_.parallel.world);
  };
  if (found) {
    check();
    try {
      found->fetch(own_slices(*found, engine_->parameters(), engine_->optimizer()), setup_.parallel.world);
    } catch (Error const& error) {
      if (is_rank_zero()) {
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

void Trainer::open_log() {
  if (!is_rank_zero()) {
    return;
  }
  print_start();
  std::map<std::string, std::string> valid_datasets;
  for (ValidationSet const& set : data_->valid) {
    valid_datasets[set.name] = set.digest();
  }
  training_log_.emplace(TrainingLog::open(
      *directory_,
      {.step = state_.step,
       .steps = config_.train.steps,
       .tokens = state_.tokens,
       .seconds = state_.seconds,
       .every = config_.train.log_every,
       .measures = data_->valid.empty() ? std::vector<Measure>() : measures(config_, setup_.registries),
       .valid_datasets = valid_datasets,
       .parallel = setup_.parallel},
      log_));
}

void Trainer::restore(Checkpoint const& checkpoint) {
  for (std::string const& message : changes_since(checkpoint, config_)) {
    log_.info(message);
  }
  if (!checkpoint.contents().instruction_set.empty() &&
      checkpoint.contents().instruction_set != setup_.instruction_set) {
    log_.info(
        fmt::format("note: the checkpoint was computed with the instructions {}, this run continues with {}: it will "
                    "not be bitwise the run that it would have been",
                    checkpoint.contents().instruction_set, setup_.instruction_set));
  }
  for (std::string const& message : new_state(checkpoint, stream().tensors())) {
    log_.info(message);
  }
  load_training_state(checkpoint, *whole_model_, engine_->parameters(), engine_->optimizer());
  state_ = checkpoint.state();
  if (state_.best_checkpoint() == 0) {  // an earlier version did not record it
    state_.earlier_best = checkpoints_.linked_best(state_.step);
  }
  state_.validation_pending = state_.validation_pending && !data_->valid.empty();
  origin_ = checkpoint.contents().origin;
  base_ = checkpoint.contents().base;
  std::erase_if(base_.names, [&](auto const& name) { return !checkpoint.in_base(name.first); });
  MixtureCursor cursor = data_cursor(checkpoint.contents(), checkpoint.directory().string());
  if (has_new_data(checkpoint, *data_)) {
    for (SampleCursor& own : cursor) {
      ++own.epoch;
      own.position = 0;
    }
    log_.info(fmt::format("note: new data: training starts with its first sample, epoch {}", cursor.front().epoch));
  }
  restore_losses(checkpoint);
  reader_->seek(cursor);
}

ExitCode Trainer::run(StopSignal const& signal) {
  if (finished()) {
    end_finished();
    return ExitCode::done;
  }
  begin_report();
  if (state_.step > 0 && state_.best_step == state_.step && checkpoints_.committed_step() != state_.step) {
    save_checkpoint({.disk = true, .wait = true});  // it was lost on its way from memory to the disk
  }
  link_best();
  checkpoints_.protect(loss_watch_.risen_since());
  if (state_.validation_pending && !finish_validation(signal)) {
    return stop(signal);
  }
  while (!finished()) {
    if (is_rank_zero()) {
      signal.set_notice(stop_notice());
    }
    after_step(traced_step(), signal);
    finish_trace(finished());
    setup_.watch.phase("ending step", state_.step);
    auto const [stop, restore, finish] = requests(signal);
    if (restore) {
      restore_directory();
    } else if (finish) {
      finish_checkpoint();
    }
    if (stop && !finished()) {
      return this->stop(signal);
    }
  }
  save_final_checkpoint();
  print_end(final_state());
  return ExitCode::done;
}

ExitCode Trainer::stop(StopSignal const& signal) {
  finish_trace(true);
  save_final_checkpoint();
  print_end("stopped by " + signal.name());
  return ExitCode::requeue;
}

StepReport Trainer::train_step() {
  setup_.watch.phase("training step", state_.step + 1);
  unfreeze(state_.step);
  // Validation reports the gradients' norms.
  GradientsAfter const after = validates_after(state_.step + 1) ? GradientsAfter::kept : GradientsAfter::zero;
  double const rate = setup_.registries.schedules.learning_rate(config_.optimizer, state_.step, config_.train.steps);
  while (true) {
    std::string const name = fmt::format("step {}", state_.step + 1);
    WorkScope const timed(&setup_.times, {WorkKind::step, name});
    MicroBatchSource const& batch = next_batch();
    WatchedMicroBatches const watched(batch, setup_.watch);
    auto const outcome = finite_steps_.run([&] { return engine_->step(watched, state_.step, rate, after); });
    report_not_finite(outcome);
    if (!outcome.skipped) {
      ++state_.step;
      state_.tokens += batch.tokens().all;
      return {state_.step, outcome.result, rate, batch.tokens(), reader_->progress().epochs, corpus_epochs()};
    }
  }
}

std::map<std::string, double> Trainer::corpus_epochs() const {
  std::map<std::string, double> epochs;
  std::vector<Corpus> const& corpora = reader_->mixture().corpora();
  if (is_rank_zero() && corpora.size() > 1) {
    std::ranges::transform(corpora, reader_->progress().corpus_epochs, std::inserter(epochs, epochs.end()),
                           [](Corpus const& corpus, double value) { return std::pair(corpus.name, value); });
  }
  return epochs;
}

StepReport Trainer::traced_step() {
  if (tracing_) {
    setup_.trace->record(true);
  }
  StepReport const report = train_step();
  if (tracing_) {
    setup_.trace->record(false);
  }
  return report;
}

MicroBatchSource const& Trainer::next_batch() {
  WorkScope const timed(&setup_.times, {WorkKind::data, "reading"});
  MicroBatchSource const& batch = reader_->next();
  if (state_.step + 1 < config_.train.steps) {
    reader_->read_ahead();
  }
  return batch;
}

void Trainer::after_step(StepReport const& report, StopSignal const& signal) {
  report_->count_step(report.step, report.tokens);
  auto const validation = validates_after(state_.step) ? validate_unless(signal) : std::nullopt;
  if (is_rank_zero()) {
    training_log_->step(report, validation);
    if (auto const rise = loss_watch_.add(report.step, report.result.loss)) {
      log_.warn(*rise);
    }
    checkpoints_.protect(loss_watch_.risen_since());
  }
  if (validation) {
    report_validation(*validation);
  }
  std::int64_t const check_every = config_.train.check_every_steps;
  if (check_every > 0 && state_.step % check_every == 0) {
    check_replicas(setup_.parallel, engine_->parameters(), &engine_->optimizer());
  }
  auto const due = [&](std::int64_t steps) { return steps > 0 && state_.step % steps == 0; };
  if (!state_.validation_pending) {  // else the run stops now, with a checkpoint
    bool const best = validation && state_.best_step == state_.step;
    save_checkpoint(
        {.disk = best || due(config_.checkpoint.every_steps), .memory = due(config_.checkpoint.memory_every_steps)});
  }
}

bool Trainer::finished(TrainingState const& state) const {
  return !state.validation_pending && (state.step >= config_.train.steps || stopped_early(state));
}

Trainer::Requests Trainer::requests(StopSignal const& signal) const {
  std::array<std::int32_t, 3> found{signal.received() ? 1 : 0, directory_ && !directory_->in_place() ? 1 : 0,
                                    checkpoints_.writes() ? 1 : 0};
  all_reduce_values<std::int32_t>(setup_.parallel.world, found, ReduceOp::max);
  return {found[0] != 0, found[1] != 0, checkpoints_.in_flight() && found[2] == 0};
}

void Trainer::restore_directory() {
  if (is_rank_zero()) {
    log_.notice(
        fmt::format("{} was removed or replaced while training: it is made again, with a checkpoint of step {}; what "
                    "was in it is not",
                    setup_.directory.string(), readable_count(state_.step)));
    directory_.reset();  // its lock may still be the one on the directory's name
    open_directory();
    directory_->replace_file("config.toml", to_toml(config_));
    training_log_->reopen(*directory_);
    log_.open(*directory_);
  }
  checkpoints_.start_over(directory_ ? &*directory_ : nullptr);
  save_checkpoint({.disk = true, .wait = true});
}

std::set<std::string> Trainer::left_out() const {
  return config_.model.adapter.save_base ? std::set<std::string>() : left_to_base(base_, *whole_model_);
}

ModelStream Trainer::stream() const {
  return {setup_.parallel, *whole_model_, engine_->parameters(), engine_->optimizer(), left_out()};
}

void Trainer::save_checkpoint(CheckpointKeeper::Request const& asked) {
  auto const request = checkpoints_.remaining(asked, state_.step);
  if (!request.disk && !request.memory) {
    return;
  }
  setup_.watch.phase("saving step", state_.step);
  if (is_rank_zero()) {
    training_log_->pause();
    state_.seconds = training_log_->seconds();
  }
  if (request.disk || request.memory) {
    // Diverged parameters must not be kept.
    check_replicas(setup_.parallel, engine_->parameters(), &engine_->optimizer());
  }
  CheckpointContents contents;
  contents.state = state_;
  contents.config = to_toml(config_);
  contents.source_model = data_->vocabulary().source.model();
  contents.target_model = data_->vocabulary().target.model();
  contents.dataset = data_->digest();
  set_data_cursor(contents, reader_->progress().cursor);
  contents.instruction_set = setup_.instruction_set;
  contents.valid_dataset = valid_digest_;
  contents.losses = loss_watch_.history();
  contents.state_begins = engine_->optimizer().state_begins();
  contents.origin = origin_;
  contents.base = base_;
  ModelStream tensors = stream();
  log(checkpoints_.keep(contents, tensors, request));
  if (is_rank_zero()) {
    training_log_->resume();
  }
}

void Trainer::link_best() {
  if (std::string const problem = checkpoints_.link_best(state_.step); !problem.empty()) {
    log_.notice("note: " + problem);
  }
}

void Trainer::finish_checkpoint() {
  if (!checkpoints_.in_flight()) {
    return;
  }
  setup_.watch.phase("saving step", state_.step);
  log(checkpoints_.finish());
}

void Trainer::save_final_checkpoint() {
  finish_checkpoint();
  save_checkpoint({.disk = true, .wait = true});
  checkpoints_.close();
}

}  // namespace heddle
