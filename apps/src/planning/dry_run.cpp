#include "dry_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/host_name.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/model/layout.hpp>
#include <heddle/core/parameters/update_rules.hpp>
#include <heddle/dist/planning/available_memory.hpp>
#include <heddle/io/checkpoint/store.hpp>

#include "plan_session.hpp"
#include "run/checkpoints/checkpoint.hpp"
#include "run/checkpoints/checkpoint_room.hpp"
#include "run/checkpoints/initialization.hpp"
#include "run/checkpoints/teachers.hpp"
#include "run/configuration/config_check.hpp"
#include "run/directory/run_directory.hpp"
#include "run/report/mesh.hpp"
#include "run/report/run_text.hpp"

namespace heddle {

namespace {

std::vector<MemoryReport> reports_of(std::vector<MemoryNeed> const& ranks) {
  std::vector<MemoryReport> reports;
  for (MemoryNeed const& rank : ranks) {
    reports.push_back({.predicted = rank.use, .measured = {}});
  }
  return reports;
}

/// Returns every rank's memory.
std::vector<MemoryNeed> print_memory(PlanSession& session, LayoutPlan& plan, bool tables) {
  std::vector<MemoryNeed> largest = session.planner().plan_exactly(plan);
  if (tables) {
    fmt::print("Memory with the largest micro-batches that can occur:\n{}", describe_prediction(reports_of(largest)));
    int const batches = session.data().batches();
    fmt::print("Memory with the data's first {} batch{}:\n{}", batches, batches == 1 ? "" : "es",
               describe_prediction(reports_of(session.planner().memory_of_ranks(plan.layout, true))));
  }
  MemorySum sum;
  std::ranges::for_each(largest, [&](MemoryNeed const& rank) { sum.add(rank); });
  std::string const beside =
      fmt::format(" (with {} for packs of samples, {} for kernels' scratch and a margin of {})",
                  readable_size(sum.packs), readable_size(sum.scratch), readable_size(sum.margin));
  AvailableMemory const available = available_memory();
  std::int64_t const here = std::min(available.host, available.group);
  if (here != AvailableMemory::unlimited) {
    fmt::print("{} rank{} on this machine: {} of the {} that are available{}{}\n", readable_count(plan.layout.ranks()),
               plan.layout.ranks() == 1 ? "" : "s together", readable_size(sum.total()), readable_size(here),
               tables ? beside : "", sum.total() > here ? ": the run would be refused here" : "");
  }
  return largest;
}

/// The checkpoint from which the run would resume.
std::optional<Checkpoint> checkpoint_of(DryRun const& run) {
  CheckpointStore store(run.directory / "checkpoints", run.config.checkpoint.keep);
  auto const note = [](std::string const& message) { fmt::print("note: {}\n", message); };
  return run.options.resume_from ? store.of_step(*run.options.resume_from) : store.newest_verified(note);
}

/// The start of the run.
struct Start {
  std::optional<Checkpoint> checkpoint;          ///< from which it resumes
  std::vector<std::string> initialization = {};  ///< describes what it takes from train.initialize_from
  std::int64_t origin_bytes = 0;                 ///< of the origin in its checkpoints

  std::int64_t made() const { return checkpoint ? checkpoint->state().step : 0; }
};

/// Finds and checks both as a start does, before anything is planned: these checks take no time.
Start find_start(DryRun const& run, PlannedData const& data, WholeModel const& model) {
  require_vocabulary_of_teachers(run.config, data.data()->vocabulary());
  Start start{checkpoint_of(run)};
  if (start.checkpoint) {
    check_same_run(*start.checkpoint, run.config, *data.data(), run.options.new_data);
    start.origin_bytes = start.checkpoint->contents().origin_bytes();
  } else if (!run.config.train.initialize_from.empty()) {
    Vocabulary const& vocabulary = data.data()->vocabulary();
    Initialization const planned({run.config, model, vocabulary.source.model(), vocabulary.target.model()},
                                 Communicator::self());
    start.initialization = planned.describe();
    start.origin_bytes = planned.contents().origin_bytes();
  }
  return start;
}

void print_start(DryRun const& run, Start const& start) {
  std::optional<Checkpoint> const& found = start.checkpoint;
  if (!found) {
    std::string const& from = run.config.train.initialize_from;
    if (run.options.verbosity != Verbosity::quiet) {
      for (std::string const& message : start.initialization) {
        fmt::print("{}\n", message);
      }
    }
    fmt::print("It would start in {}{}\n", run.directory.string(),
               from.empty() ? "" : " with the parameters of " + from);
    return;
  }
  for (std::string const& message : changes_since(*found, run.config)) {
    fmt::print("{}\n", message);
  }
  std::int64_t const step = found->state().step;
  if (step < run.config.train.steps) {
    fmt::print("It would resume after step {} of {} in {}\n", readable_count(step),
               readable_count(run.config.train.steps), run.directory.string());
  } else {
    fmt::print("{} is already at step {}: raise train.steps\n", run.directory.string(), readable_count(step));
  }
}

/// Prints what checkpoints take on the disk, with -q only if it is too much. Throws as a start does where it has no
/// room for one.
void print_room(DryRun const& run, PlannedData const& data, WholeModel const& model, Start const& start) {
  CheckpointRoom const room = checkpoint_room(run.directory, run.config, model, data.data()->vocabulary(),
                                              run.registries.kernels, start.origin_bytes);
  if (run.options.verbosity != Verbosity::quiet || !room.suffices()) {
    fmt::print("{}\n", room.describe());
  }
  if (start.made() < run.config.train.steps) {
    room.require_one();
  }
}

}  // namespace

ExitCode dry_run(DryRun const& run) {
  Config const& config = run.config;
  int const number_of_ranks = run.options.ranks.value_or(1);
  Verbosity const verbosity = run.options.verbosity;
  PlanSession session(
      config, run.registries, run.execution,
      {.machines = {.nodes = 1, .ranks_per_node = number_of_ranks}, .network = {}, .keep_times = false});
  ModelDescription const& model = session.model();
  LayoutChoice const layout = layout_of(config, model, number_of_ranks);
  Mesh const mesh(layout.shape, 0, number_of_ranks);
  require_long_enough(config, model, mesh, number_of_ranks, session.data().totals().longest);
  std::vector<std::string> const hosts(static_cast<std::size_t>(number_of_ranks), host_name());
  bool const quiet = verbosity == Verbosity::quiet;
  if (verbosity == Verbosity::verbose) {
    fmt::print("{}\n", to_toml(config));
  }
  if (!quiet) {
    MeshText const text = describe_mesh(mesh_to_json(config, model, mesh, session.data().vocabulary(), hosts));
    fmt::print("{}{}{}", text.line, text.table, text.warning);
    if (number_of_ranks > 1) {
      print_notes(
          {fmt::format("all {} ranks are taken to be on one host; for several, with a network between them: "
                       "heddle plan RUN.toml --nodes N --ranks-per-node R",
                       readable_count(number_of_ranks))});
    }
    print_notes(keys_without_effect(config, mesh, run.registries.tasks.of(config)));
    if (std::string const tied = tied_tables(model, session.data().vocabulary()); !tied.empty()) {
      print_notes({tied});
    }
  }
  std::ranges::for_each(warnings_about(session.data().mixture(), config.model.max_length), warn);
  WholeModel const whole = whole_model(config, run.registries, session.data().vocabulary());
  Start const start = find_start(run, session.data(), whole);
  session.measure({layout});
  LayoutPlan plan = session.planner().estimate(layout);
  std::vector<MemoryNeed> const ranks = print_memory(session, plan, !quiet);
  if (!quiet) {
    fmt::print("Plan of a step on {}, {} tokens, network {}:\n{}", session.data().describe(),
               readable_count(session.data().tokens_of_a_step()), session.network().source, describe_plan(plan));
    if (start.made() < config.train.steps) {
      fmt::print("{}", session.data().describe_run(config.train.steps, plan.step_seconds, start.made()));
    }
    print_notes(session.notes());
  } else {
    fmt::print("a step: {:.4f} s\n", plan.step_seconds);
  }
  if (auto const holder = RunDirectory::holder(run.directory)) {
    fmt::print("note: {} trains in {}: another run would be refused\n", *holder, run.directory.string());
  }
  // The ranks may be meant for larger machines, but not if one of them does not fit here even without the others.
  if (config.train.reserve_memory) {
    require_memory(Communicator::self(), *std::ranges::max_element(ranks, {}, &MemoryNeed::total), available_memory());
  }
  print_room(run, session.data(), whole, start);
  print_start(run, start);
  fmt::print("Dry run: nothing was started.\n");
  return ExitCode::done;
}

}  // namespace heddle
