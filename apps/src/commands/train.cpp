#include <fmt/format.h>

#include <filesystem>
#include <heddle/core/base/error.hpp>
#include <heddle/core/model/layout.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/core/parameters/update_rules.hpp>
#include <heddle/core/tensor/runtime.hpp>
#include <heddle/dist/mpi/mpi.hpp>
#include <heddle/dist/trace/trace_file.hpp>
#include <heddle/dist/watch/watch.hpp>
#include <heddle/kernels/register.hpp>
#include <optional>

#include "command_line/ranks.hpp"
#include "command_line/train_options.hpp"
#include "commands.hpp"
#include "planning/dry_run.hpp"
#include "run/checkpoints/teachers.hpp"
#include "run/configuration/config_check.hpp"
#include "run/configuration/kernel_cache.hpp"
#include "run/configuration/precision.hpp"
#include "run/configuration/registration.hpp"
#include "run/directory/warning.hpp"
#include "training/trainer.hpp"

namespace heddle {
namespace {

CommandSyntax train_syntax(TrainOptions& options) {
  CommandSyntax syntax;
  syntax.name = "train";
  syntax.usage =
      "RUN.toml [--set SECTION.KEY=VALUE]... [--fresh | --resume-from STEP] [--new-data] [--trace N]\n"
      "   or: heddle train RUN.toml --dry-run [--ranks N]";
  syntax.summary = R"(Trains as RUN.toml says, alone or on every rank that mpirun or srun starts. Where run.directory
has checkpoints, resumes from the newest that verifies. SIGUSR1, SIGTERM and SIGINT: writes a checkpoint
after the step. The keys of RUN.toml: docs/reference/config.md, `heddle config --defaults` and `heddle config
--explain KEY`.

Exit codes: 0 done; 64 wrong command line; 65 no valid checkpoint, or bad data; 70 replicas differ; 71
loss, gradient or parameters not finite; 75 checkpointed after a signal, the next start resumes; 78 wrong
configuration; 86 a rank hung; 1 another error.)";
  add_train_options(syntax, options);
  syntax.options.add_options()  //
      ("dry-run", boost::program_options::bool_switch(&options.dry_run),
       "print layout, memory and the time of a step, and start nothing")  //
      ("ranks", without_default<int>(options.ranks, "N"),
       "number of ranks of a dry run, which needs no mpirun (default: 1)");
  return syntax;
}

/// Throws if ranks were started with different configurations: they would wait for each other's messages, or train
/// separately. Plug-ins are compared by their files (require_same_plugins). Collective over `world`.
void require_same_config(Config config, Communicator const& world) {
  config.plugins = {};
  std::string const own = to_toml(config);
  if (any_of(world, own != broadcast_text(world, own))) {
    throw ConfigError("the ranks were started with different configurations; give all the same file and --set options");
  }
}

/// The highest level that every rank can use; collective over `world`.
CpuLevel common_cpu_level(Communicator const& world, Verbosity verbosity) {
  auto const own = static_cast<std::int32_t>(usable_cpu_level());
  Tensor const min = from_host<std::int32_t>(std::span(&own, 1), {1});
  world.all_reduce(min, ReduceOp::min);
  auto const common = static_cast<CpuLevel>(to_host<std::int32_t>(min).front());
  if (world.rank() == 0 && common < detected_cpu_level() && verbosity != Verbosity::quiet) {
    fmt::print("note: kernels are limited to {}, the highest level that every rank can and may use; rank 0 has {}\n",
               name_of(common), name_of(detected_cpu_level()));
  }
  return common;
}

/// The mesh's groups, and the way in which [parallel] uses them; collective over `world`.
ParallelState make_parallel(Config const& config, Registries const& registries, Communicator const& world) {
  ModelDescription const model = describe_trainable(config, registries);
  Mesh const mesh = make_mesh(config, model, world.rank(), world.size());
  ParallelState parallel = make_parallel_state(world, mesh);
  parallel.set_modes(config.parallel.sequence_parallel, config.parallel.context_mode);
  parallel.divide_experts(config.parallel.expert);
  parallel.divide_parameters(shards_of(config.parallel));
  return parallel;
}

/// The run's directory, chosen on rank 0's machine.
std::filesystem::path choose_run_directory(Config const& config, bool fresh, Communicator const& world) {
  return broadcast_text(world, run_directory_for(config.run.directory, fresh && world.rank() == 0).string());
}

/// The world that the run uses: with a watch, measured, and checked if the configuration says so. `session` is null
/// without MPI.
Communicator run_world(Config const& config, Watch& watch, StepTimes const& times, MpiSession const* session) {
  if (session == nullptr) {
    return Communicator::self();
  }
  auto const backend = session->world().backend();
  return Communicator(times.measured(watch.watched(config.parallel.checked ? checked(backend) : backend)));
}

/// Observes kernels if a trace is asked for, or where a tool of Kokkos wants to see them; otherwise nothing.
std::optional<StepTrace> make_trace(TrainOptions const& options) {
  return options.trace > 0 || has_kokkos_tool() ? std::optional<StepTrace>(has_kokkos_tool()) : std::nullopt;
}

/// Makes `watch`, which outlives the work: while this rank waits for the others at MPI's end, it answers them.
ExitCode train(TrainOptions const& options, Arguments const& arguments, MpiSession const* session,
               StopSignal const& signal, std::optional<Watch>& watch) {
  Communicator const plain_world = session == nullptr ? Communicator::self() : session->world();
  Config config = read_config(options);
  for (std::string& path : config.plugins.paths) {
    path = std::filesystem::absolute(path).lexically_normal().string();  // checkpoints are used from anywhere
  }
  require_supported(config);
  Runtime runtime;
  require_same_config(config, plain_world);
  watch.emplace(plain_world, Watch::Options{.hang_seconds = config.train.hang_seconds});
  if (plain_world.rank() == 0 && !watch->unreachable().empty()) {
    warn(fmt::format(
        "UDP messages between ranks do not get through ({}): whether a rank there is slow, stopped or dead cannot be "
        "known, so the run does not end with 86 (train.hang_seconds) while one does not answer; open UDP between the "
        "hosts of a job",
        watch->unreachable()));
  }
  std::optional<StepTrace> trace = make_trace(options);
  StepTimes times(trace ? &*trace : nullptr);
  Communicator const world = run_world(config, *watch, times, session);
  Registries registries;
  CpuLevel const level = common_cpu_level(world, options.verbosity);
  std::vector<PluginFile> const plugins = read_plugins(config.plugins);
  require_same_plugins(plugins, world);
  register_everything({.plugins = plugins, .trust_plugins = options.trust_plugins, .level = level}, registries,
                      runtime.execution());
  registries.kernels.require_known(config.kernels);
  if (options.change) {
    options.change(config, registries);
  }
  resolve_rules(config.optimizer, registries.kernels, registries.schedules);
  resolve_validate_bleu(config, registries);
  ParallelState const parallel = make_parallel(config, registries, world);
  auto const directory = choose_run_directory(config, options.fresh, world);
  resolve_precision(config, level, directory, world);
  find_teachers(config, registries, directory, world);
  RunKernels const kernels = choose_run_kernels(config.kernels, directory, machine_name(level), world);
  registries.kernels.set_timings(kernels.timings);
  if (trace) {
    registries.kernels.observe(*trace);
  }
  Trainer trainer({.options = options,
                   .config = config,
                   .registries = registries,
                   .kernels = kernels,
                   .parallel = parallel,
                   .execution = runtime.execution(),
                   .watch = *watch,
                   .directory = directory,
                   .instruction_set = describe_instruction_sets(level),
                   .command = command_line("train", arguments, world.size()),
                   .resume_command = command_line("train", arguments_to_resume(options, directory), world.size()),
                   .times = times,
                   .trace = trace ? &*trace : nullptr,
                   .clock_offset = options.trace > 0 ? clock_offset(world) : 0});
  ExitCode const code = trainer.run(signal);
  signal.set_notice("");
  watch->finish("leaving the run");
  return code;
}

ExitCode train_dry(TrainOptions const& options) {
  if (launched_by_mpi()) {
    throw UsageError(
        "train: --dry-run is started without mpirun or srun; --ranks N says how many ranks there would be");
  }
  Config config = read_config(options);
  require_supported(config);
  Runtime runtime;
  Registries registries;
  register_everything({.plugins = read_plugins(config.plugins), .trust_plugins = options.trust_plugins}, registries,
                      runtime.execution());
  auto const directory = run_directory_for(config.run.directory, options.fresh);
  resolve_precision(config, usable_cpu_level(), directory);
  check_config(config, registries, options.ranks.value_or(1));
  resolve_rules(config.optimizer, registries.kernels, registries.schedules);
  resolve_validate_bleu(config, registries);
  find_teachers(config, registries, directory);
  print_warnings(config);
  return dry_run({.options = options,
                  .config = config,
                  .registries = registries,
                  .execution = runtime.execution(),
                  .directory = directory});
}

}  // namespace

ExitCode run_train(Arguments const& arguments) {
  TrainOptions options;
  parse_options(train_syntax(options), arguments);
  require_valid(options, "train");
  return options.dry_run ? train_dry(options) : train_on_ranks(options, arguments);
}

ExitCode train_on_ranks(TrainOptions const& options, Arguments const& arguments) {
  StopSignal const signal;  // from here on, so that a signal while the model is built is not lost
  std::optional<Watch> watch;
  return run_on_ranks([&](MpiSession const* session) {
    try {
      return train(options, arguments, session, signal, watch);
    } catch (...) {
      watch.reset();  // else it could end the job before the error is printed
      throw;
    }
  });
}

}  // namespace heddle
