#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/paths.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/parameters/update_rules.hpp>
#include <heddle/dist/mpi/mpi.hpp>
#include <heddle/dist/planning/available_memory.hpp>
#include <heddle/dist/planning/network.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <optional>

#include "command_line/options.hpp"
#include "command_line/ranks.hpp"
#include "commands.hpp"
#include "planning/config_edit.hpp"
#include "planning/plan_session.hpp"
#include "run/checkpoints/teachers.hpp"
#include "run/configuration/config_check.hpp"
#include "run/configuration/kernel_cache.hpp"
#include "run/configuration/precision.hpp"
#include "run/configuration/registration.hpp"
#include "run/directory/warning.hpp"
#include "run/processes/binding.hpp"
#include "run/report/run_text.hpp"

namespace heddle {
namespace {

struct PlanOptions : ConfigOptions {
  bool trust_plugins = false;
  PlanSettings settings;
  double memory = 0;  ///< GiB of a node; 0: this machine's
  double budget = 0;  ///< node-hours; 0: none
  std::optional<double> measure_seconds;
  int best = 5;
  bool details = false;
  Verbosity verbosity = Verbosity::normal;
  bool write = false;
  bool measure = false;
};

CommandSyntax plan_syntax(PlanOptions& options) {
  namespace po = boost::program_options;
  CommandSyntax syntax;
  syntax.name = "plan";
  syntax.usage =
      "RUN.toml --nodes N --ranks-per-node R [--memory GIB] [--network ALPHA,BETA | measured] [--write] [options]\n"
      "   or: mpirun … heddle plan [RUN.toml] --measure";
  syntax.summary = R"(Lists the fastest layouts of a run on N nodes that fit into their memory, with memory by part,
communication by group, the pipeline's bubble and the time of a step; counts the others by the limit that
they exceed; and shows the same run on fewer nodes. Needs no MPI. With --measure, under mpirun: measures
messages for --network measured and, with RUN.toml, kernels while every rank computes. docs/guide/planning.md
says how a plan is made and what it leaves out.)";
  PlanSettings& settings = options.settings;
  add_config_options(syntax, options, false);
  syntax.options.add_options()  //
      ("trust-plugins", po::bool_switch(&options.trust_plugins),
       "load plug-ins without checking their kernels and layers")               //
      ("nodes", with_default(settings.machines.nodes, "N"), "number of nodes")  //
      ("ranks-per-node", with_default(settings.machines.ranks_per_node, "R"),
       "ranks on each node")  //
      ("memory", po::value(&options.memory)->value_name("GIB"),
       "memory of a node for all of its ranks (default: what is available here)")  //
      ("network", po::value(&settings.network)->value_name("ALPHA,BETA"),
       "seconds of an empty message and of each byte, or \"measured\" (default: measured, or assumed if it was not)")  //
      ("budget", po::value(&options.budget)->value_name("NODE-HOURS"), "say how many steps they pay for")  //
      ("best", with_default(options.best, "COUNT"), "layouts to list")                                     //
      ("details", po::bool_switch(&options.details),
       "memory and communication of each of them, not of the first "
       "only")                                                                            //
      ("write", po::bool_switch(&options.write), "write the first layout into RUN.toml")  //
      ("measure-seconds", without_default<double>(options.measure_seconds, "SECONDS"),
       "limit of the time to measure kernels that were not yet timed on this machine (default: 5, with --measure "
       "60)")  //
      ("remeasure", po::bool_switch(&settings.remeasure),
       "measure all kernels again, also those whose times are known and recent")  //
      ("vocabulary", with_default(settings.vocabulary, "PIECES"),
       "vocabulary size where data.train is not set")  //
      ("measure", po::bool_switch(&options.measure), "measure instead of planning");
  add_verbosity(syntax, options.verbosity,
                "print only warnings, the list of layouts and the limits that rejected others",
                "print the whole resolved configuration and the details, too");
  return syntax;
}

void require_at_least(std::string_view option, double value, double min) {
  if (!(value >= min)) {
    throw UsageError("plan: {} {}: expected at least {}", option, value, min);
  }
}

void check(PlanOptions const& options) {
  Machines const& machines = options.settings.machines;
  require_at_least("--nodes", machines.nodes, 1);
  require_at_least("--ranks-per-node", machines.ranks_per_node, 1);
  require_at_least("--best", options.best, 1);
  require_at_least("--memory", options.memory, 0);
  require_at_least("--budget", options.budget, 0);
  constexpr double max_memory = 1e9;
  if (options.memory > max_memory) {
    throw UsageError("plan: --memory {}: expected GiB of one node", options.memory);
  }
  require_at_least("--measure-seconds", options.measure_seconds.value_or(0), 0);
  require_at_least("--vocabulary", static_cast<double>(options.settings.vocabulary), 4);
  constexpr int max = 1 << 20;
  if (machines.ranks_per_node > max / machines.nodes) {
    throw UsageError("plan: {} nodes of {} ranks: expected at most {} ranks", machines.nodes, machines.ranks_per_node,
                     readable_count(max));
  }
  if (options.config.empty() && !(options.measure && options.overrides.empty())) {
    throw UsageError("plan: RUN.toml is missing");
  }
  if (options.measure && options.write) {
    throw UsageError("plan: --measure makes no plan; leave it out to --write one");
  }
  if (!options.measure && launched_by_mpi()) {
    throw UsageError(
        "plan: is started without mpirun or srun, except with --measure; --nodes and --ranks-per-node say how "
        "many ranks there would be");
  }
}

/// The configuration and what it names, as training sees them.
struct Loaded {
  Config config;
  Registries registries;
};

void load(PlanOptions const& options, Execution& execution, Loaded& loaded) {
  loaded.config = read_config(options);
  register_everything({.plugins = read_plugins(loaded.config.plugins), .trust_plugins = options.trust_plugins},
                      loaded.registries, execution);
  resolve_precision(loaded.config, usable_cpu_level());
  Config checked = loaded.config;
  checked.parallel = {};  // the plan chooses the layout
  check_config(checked, loaded.registries);
  resolve_rules(loaded.config.optimizer, loaded.registries.kernels, loaded.registries.schedules);
  resolve_validate_bleu(loaded.config, loaded.registries);
  find_teachers(loaded.config, loaded.registries, loaded.config.run.directory);
}

std::int64_t node_memory(double gibibytes) {
  if (gibibytes > 0) {
    return static_cast<std::int64_t>(gibibytes * (1 << 30));
  }
  AvailableMemory const available = available_memory();
  return std::min(available.host, available.group);
}

std::string text_of(std::string const& path) {
  FileText file = read_file_text(path);
  if (!file.problem.empty()) {
    throw ConfigError(file.problem);
  }
  return std::move(file.text);
}

/// Writes a layout into the user's file; what --set changed in addition is not written.
void write_layout(std::string const& path, LayoutChoice const& layout) {
  Config const before = load_config(path);
  Config after = with_layout(before, layout);
  if (before.parallel.data == 0) {
    after.parallel.data = 0;  // "auto" leaves the same
  }
  auto const edits = differences(before, after);
  if (edits.empty()) {
    fmt::print("{} has this layout already\n", path);
    return;
  }
  replace_file(path, edited_config(text_of(path), path, edits, after));
  for (ConfigDifference const& edit : edits) {
    fmt::print("{}: {} = {}\n", path, edit.key, edit.after);
  }
}

/// The run that a budget pays for, by the first layout, and on another number of nodes if that pays for more.
std::string describe_budget(PlanOptions const& options, PlannedData const& data, std::int64_t wanted_steps,
                            double step_seconds, std::vector<NodesPlan> const& by_nodes) {
  constexpr double hour = 3600;
  int const nodes = options.settings.machines.nodes;
  auto const affordable = [&](int on_nodes, double seconds) {
    double const steps = options.budget / on_nodes * hour / seconds;
    return static_cast<std::int64_t>(std::min(steps, 1e15));
  };
  std::int64_t const steps = affordable(nodes, step_seconds);
  std::string text =
      fmt::format("\n{:g} node-hours, {} of {}, pay for {} % of the run's {} steps: {}", options.budget,
                  readable_duration(options.budget / nodes * hour), counted(nodes, "node"),
                  readable_decimal(100 * static_cast<double>(steps) / static_cast<double>(wanted_steps), 0),
                  readable_count(wanted_steps), data.describe_run(steps, step_seconds));
  std::int64_t most = 0;
  int on_nodes = nodes;
  for (auto const& [count, best] : by_nodes) {
    if (std::int64_t const each = best ? affordable(count, best->step_seconds) : 0; each > most) {
      most = each;
      on_nodes = count;
    }
  }
  if (on_nodes != nodes) {
    text += fmt::format("They pay for the most, {} steps, on {}, in {}\n", readable_count(most),
                        counted(on_nodes, "node"), readable_duration(options.budget / on_nodes * hour));
  }
  return text;
}

/// How to start the ranks of a layout on such nodes, side by side.
std::string describe_start(Machines const& machines, LayoutChoice const& layout, NodeTopology const& node) {
  int const cores = static_cast<int>(node.cores.size());
  if (machines.ranks_per_node > cores) {
    return fmt::format(
        "\nThis machine has {}: HWLOC_XMLFILE=FILE.xml, written by `lstopo FILE.xml` on a node of the job, lets the "
        "plan say how its ranks are bound\n",
        describe(node));
  }
  BindingProposal const proposal = propose_binding(machines.ranks_per_node, node);
  NeighbourGroups const groups = inner_groups(layout.shape);
  // A few nodes stand for all: as many as one group of ranks can touch.
  int const described = std::min(machines.ranks(), machines.ranks_per_node * std::max(1, groups.ranks));
  int const idle = cores - machines.ranks_per_node * proposal.cores_per_rank;
  bool const open_mpi = mpi_library().starts_with("Open MPI");
  return fmt::format("\nStart, on nodes of {}: {}{}\n  {} -np {} {} …\n  srun {} …\n", describe(node),
                     describe_binding(ranks_side_by_side(described, machines.ranks_per_node, node), node, groups),
                     idle > 0 ? fmt::format("; {} of a node idle", counted(idle, "core")) : "",
                     open_mpi ? "mpirun" : "mpiexec", machines.ranks(), open_mpi ? proposal.mpirun : proposal.mpiexec,
                     proposal.srun);
}

void print_plan(PlanOptions const& options, PlanSession& session, Config const& config, Plan const& plan,
                NodeTopology const& node) {
  Verbosity const verbosity = options.verbosity;
  Machines const& machines = options.settings.machines;
  auto const tokens = static_cast<std::int64_t>(session.data().tokens_of_a_step());
  if (verbosity == Verbosity::quiet) {
    fmt::print("{}", describe_best(plan, tokens));
    return;
  }
  fmt::print("{}", verbosity == Verbosity::verbose ? to_toml(config) + "\n" : "");
  bool const details = options.details || verbosity == Verbosity::verbose;
  fmt::print("{} of {}; {} each; network: {}; data: {}; {} tokens a step\n", counted(machines.nodes, "node"),
             counted(machines.ranks_per_node, "rank"), readable_size(machines.node_memory), session.network().source,
             session.data().describe(), readable_count(tokens));
  fmt::print("{}", describe_best(plan, tokens));
  for (std::size_t index = 0; index < plan.best.size() && (details || index == 0); ++index) {
    fmt::print("\n{}: {}\n{}", index + 1, describe(plan.best[index].layout), describe_plan(plan.best[index]));
  }
  if (!plan.best.empty()) {
    fmt::print("\nWith the first layout, {}",
               session.data().describe_run(config.train.steps, plan.best.front().step_seconds));
  }
  auto const by_nodes = machines.nodes > 1 ? session.planner().best_by_nodes() : std::vector<NodesPlan>();
  if (options.budget > 0 && !plan.best.empty()) {
    fmt::print("{}",
               describe_budget(options, session.data(), config.train.steps, plan.best.front().step_seconds, by_nodes));
  }
  if (machines.nodes > 1) {
    fmt::print("\nThe {} steps of this run, each of {} tokens, by the number of nodes:\n{}",
               readable_count(config.train.steps), readable_count(tokens),
               describe_nodes(by_nodes, tokens, config.train.steps));
  }
  fmt::print("{}", plan.best.empty() ? "" : describe_start(machines, plan.best.front().layout, node));
  print_notes(session.notes());
}

ExitCode plan(PlanOptions options) {
  Runtime runtime;
  Loaded loaded;
  load(options, runtime.execution(), loaded);
  print_warnings(loaded.config);
  NodeTopology const node = node_topology();  // refuses another node's before anything is measured
  options.settings.machines.node_memory = node_memory(options.memory);
  options.settings.measure_seconds = options.measure_seconds.value_or(options.settings.measure_seconds);
  PlanSession session(loaded.config, loaded.registries, runtime.execution(), options.settings);
  std::ranges::for_each(warnings_about(session.data().mixture(), loaded.config.model.max_length), warn);
  session.measure(session.candidates());
  Plan const found = session.planner().best_layouts(static_cast<std::size_t>(options.best));
  print_plan(options, session, loaded.config, found, node);
  if (found.best.empty()) {
    throw ConfigError(describe_refusal(found, options.settings.machines));
  }
  if (options.write) {
    write_layout(options.config, found.best.front().layout);
  }
  return ExitCode::done;
}

/// Prints the network and keeps it in the cache.
void report_network(std::filesystem::path const& cache, NetworkModel network) {
  fmt::print("network: {}\n", network.source);
  NetworkTimes times{.source = network.source};
  for (auto const& [place, links] : network_places(network)) {
    for (std::size_t link = 0; link < links->size(); ++link) {
      std::string_view const name = NetworkModel::link_names[link];
      auto const& [latency, seconds_per_byte] = (*links)[link];
      times.links[fmt::format("{} {}", place, name)] = {latency, seconds_per_byte};
      fmt::print("{:<14} {:<24} {:>9.2f} us {:>9.2f} GB/s\n", place, name, 1e6 * latency,
                 seconds_per_byte > 0 ? 1e-9 / seconds_per_byte : 0.0);
    }
  }
  fmt::print("note: the network is {}\n", keep_in_cache(cache, {.network = times}));
}

/// Collective over `world`.
ExitCode measure(PlanOptions const& options, Communicator const& world) {
  Runtime runtime;
  bool const speaks = world.rank() == 0;
  Loaded loaded;
  if (!options.config.empty()) {
    load(options, runtime.execution(), loaded);
  }
  if (world.size() == 1) {
    fmt::print("one rank: there are no messages to measure; mpirun -np N heddle plan --measure measures them\n");
  } else {
    NetworkModel const network = measure_network(world);
    if (speaks) {
      report_network(kernel_cache_path(loaded.config.kernels.cache), network);
    }
  }
  if (!options.config.empty()) {
    PlanSettings settings = options.settings;
    settings.machines = {.nodes = 1, .ranks_per_node = world.size(), .node_memory = AvailableMemory::unlimited};
    settings.measure_seconds = options.measure_seconds.value_or(60);
    PlanSession session(loaded.config, loaded.registries, runtime.execution(), settings, world);
    bool const known = session.measure(session.candidates()) == MeasuredLayouts{};
    if (known && speaks) {
      fmt::print("note: the times of all these kernels are known; --remeasure measures them again\n");
    }
    if (speaks) {
      print_notes(session.notes());
    }
  }
  return ExitCode::done;
}

}  // namespace

ExitCode run_plan(Arguments const& arguments) {
  PlanOptions options;
  parse_options(plan_syntax(options), arguments);
  check(options);
  if (!options.measure) {
    return plan(options);
  }
  return run_on_ranks([&](MpiSession const* session) {
    return measure(options, session == nullptr ? Communicator::self() : session->world());
  });
}

}  // namespace heddle
