#include <fmt/format.h>

#include <heddle/core/base/error.hpp>
#include <heddle/core/base/library.hpp>
#include <heddle/core/operations/update.hpp>
#include <heddle/core/plugins/entry.hpp>
#include <heddle/core/plugins/loading.hpp>
#include <heddle/core/tensor/runtime.hpp>
#include <heddle/kernels/register.hpp>
#include <iostream>
#include <limits>
#include <optional>
#include <string_view>

#include "command_line/options.hpp"
#include "commands/commands.hpp"
#include "kernels/benchmark.hpp"
#include "kernels/check.hpp"
#include "run/configuration/kernel_cache.hpp"
#include "run/configuration/precision.hpp"
#include "run/configuration/registration.hpp"

namespace heddle {
namespace {

static_assert(std::string_view(plugin::heddle_version) == HEDDLE_VERSION, "compiled_abi_tag.hpp names another version");

struct KernelsOptions : ConfigOptions {
  bool trust_plugins = false;
  std::optional<std::string> check;  ///< the name, "" for everything
  bool benchmark = false;
  std::int64_t vocabulary = 10000;
  bool all = false;
};

/// Lists each implementation of an operation, the fastest first, and marks those that would run.
void print_operation(AnyKernelRegistry const& registry, KernelSelections const& selections) {
  auto const taken = selections.find(std::string(registry.operation()));
  std::cout << fmt::format("  {}{}\n", registry.operation(),
                           taken == selections.end() ? " (not called by this model)" : "");
  for (Implementation const& each : registry.implementations()) {
    bool const runs = taken != selections.end() && taken->second.contains(each.name);
    std::cout << fmt::format("  {} {:<12} speed {:>2}   {}{}\n", runs ? '*' : ' ', each.name, each.speed, each.origin,
                             each.kernel->only_by_name() ? ", only by its name" : "");
  }
}

/// Lists the times that this machine has measured, and the choices of `auto` that follow.
void print_measured(AnyKernelRegistry const& registry, KernelTimings const& timings) {
  auto const operation = timings.find(std::string(registry.operation()));
  if (operation == timings.end()) {
    return;
  }
  for (auto const& [key, times] : operation->second) {
    std::vector<std::string> timed;
    std::string untimed;  // before all timed ones; their key does not show whether they support the problem
    for (Implementation const& each : registry.implementations()) {
      if (times.contains(each.name)) {
        timed.push_back(each.name);
      } else if (timed.empty()) {
        untimed += fmt::format(" + {} not timed", each.name);
      }
    }
    std::string const choice = timed.empty() ? "" : measured_choice(times, timed);
    std::cout << fmt::format("  {}: {}\n   {}", registry.operation(), key, untimed);
    for (std::string const& name : timed) {
      std::cout << fmt::format(" {}{} {:.3f} ms", name == choice ? "* " : "  ", name, times.at(name) * 1e3);
    }
    std::cout << '\n';
  }
}

/// Adds the cache's times to the registries and shows them.
void use_cache(Config const& config, Registries& registries) {
  auto const path = kernel_cache_path(config.kernels.cache);
  std::vector<std::string> notes;
  std::string const machine = machine_name(usable_cpu_level());
  KernelTimings const timings = read_cache(path, notes).kernels[machine];
  registries.kernels.set_timings(timings);
  std::cout << fmt::format("Machine: {}\n", machine);
  for (std::string const& note : notes) {
    std::cerr << fmt::format("note: {}\n", note);
  }
  if (timings.empty()) {
    std::cout << "Nothing is measured on this machine: `auto` chooses by registered speed (--benchmark measures).\n";
  } else {
    std::cout << fmt::format(
        "Measured on this machine, in {}; * marks the one that `auto` takes. An untimed one of a higher\n"
        "registered speed is marked +, and is taken in place of * where it supports the problem:\n",
        path.string());
    for (AnyKernelRegistry const* registry : registries.kernels.all()) {
      print_measured(*registry, timings);
    }
  }
  std::cout << '\n';
}

void print_registries(Config const& config, Registries const& registries, Execution& execution,
                      std::int64_t vocabulary) {
  ModelConfig const& model = config.model;
  std::cout << fmt::format("Execution space: {}\nInstructions: {}; this processor has {}\nABI tag of plug-ins: {}\n",
                           Runtime::execution_space(), describe_instruction_sets(usable_cpu_level()),
                           name_of(detected_cpu_level()), abi_tag())
            << "\nOperations and their implementations, by registered speed; * would run, by the configuration, in "
               "training with\n"
            << fmt::format("{}, d_model {}, {} heads, {}, vocabulary {}:\n", name_of(config.train.precision),
                           model.d_model, model.heads, model.activation, vocabulary);
  KernelSelections const selections = select_kernels(config, registries, execution, vocabulary);
  for (AnyKernelRegistry const* registry : registries.kernels.all()) {
    print_operation(*registry, selections);
  }
  auto const print_options = [](std::vector<RuleOption> const& options) {
    for (RuleOption const& option : options) {
      std::cout << fmt::format("        {:<17}   {}\n", option.description.name, option.description.meaning);
    }
  };
  std::cout << "\nUpdate rules, for optimizer.name, and their options:\n";
  for (RuleDefinition const& rule : update_rules(registries.kernels)) {
    std::vector<std::string> keys = rule.state;
    for (MatrixState const& state : matrix_state(rule, {DType::float32, 1, 1, option_values(rule, {})})) {
      keys.push_back(state.key);
    }
    std::cout << fmt::format("    {:<21}   keeps {} for a parameter\n", rule.name,
                             keys.empty() ? "nothing" : fmt::format("{}", fmt::join(keys, ", ")));
    print_options(rule.options);
  }
  std::cout << "\nSchedules, for optimizer.schedule, and their options:\n";
  for (ScheduleRegistry::Entry const& entry : registries.schedules.entries()) {
    std::cout << fmt::format("    {:<21}   {}\n", entry.name, entry.origin);
    print_options(entry.options);
  }
  std::cout << "\nMetrics of translations, for train.validate_metrics:\n";
  for (MetricRegistry::Entry const& entry : registries.metrics.entries()) {
    std::cout << fmt::format("    {:<21}   {}   {} is better\n", entry.name, entry.origin,
                             entry.metric.higher_is_better ? "higher" : "lower");
  }
  auto const print_parts = [](char const* heading, auto const& entries) {
    std::cout << heading;
    for (auto const& entry : entries) {
      std::cout << fmt::format("    {:<21}   {}\n", entry.name, entry.origin);
      for (OptionDescription const& option : entry.traits.options) {
        std::cout << fmt::format("        {:<17}   {}\n", option.name, option.meaning);
      }
    }
  };
  print_parts("\nLayers, for model.encoder_sublayers and model.decoder_sublayers:\n", registries.layers.entries());
  print_parts("\nInputs of stacks, for model.encoder_input and model.decoder_input:\n",
              registries.layers.inputs.entries());
  std::cout << "\nTasks, for train.task:\n";
  for (TaskRegistry::Entry const& entry : registries.tasks.entries()) {
    std::cout << fmt::format("    {:<21}   {}   {}\n", entry.name, entry.origin, entry.task->meaning());
  }
}

CommandSyntax kernels_syntax(KernelsOptions& options) {
  namespace po = boost::program_options;
  CommandSyntax syntax;
  syntax.name = "kernels";
  syntax.usage =
      "[--benchmark | --check [NAME]] [--config RUN.toml] [--set SECTION.KEY=VALUE]... [--plugin LIBRARY]... "
      "[options]";
  syntax.summary = R"(Lists what is registered: each operation's implementations, which of them the configured model
would run in the configured precision, the update rules, schedules, metrics, layers, inputs and tasks. Without a
configuration every key has its default, the paper's base model. `kernels.OPERATION` in the configuration names
one instead of `auto`. With
--benchmark: times the implementations in a training step of the configured model and keeps the times in
kernels.cache, so that `auto` takes the fastest in runs on this machine that have no checkpoint yet. With
--check: compares implementations with `reference` and gradients with central differences on small
problems; exits with 78 if one is wrong.)";
  add_config_options(syntax, options, false);
  syntax.positional = {};       // --config names the file here
  syntax.options.add_options()  //
      ("trust-plugins", po::bool_switch(&options.trust_plugins),
       "load plug-ins without checking their kernels and layers")  //
      ("check",
       po::value<std::string>()->implicit_value("")->value_name("[NAME]")->notifier(
           [&options](std::string const& name) { options.check = name; }),
       "check every implementation, layer and metric, or NAME: an operation, an implementation, "
       "OPERATION.IMPLEMENTATION, a layer, a metric or a plug-in's path")  //
      ("benchmark", po::bool_switch(&options.benchmark),
       "time implementations")  //
      ("vocabulary", with_default(options.vocabulary, "PIECES"),
       "vocabulary size for the list, and for synthetic sentences where the configuration has no data.train")  //
      ("all", po::bool_switch(&options.all),
       "with --benchmark: also time implementations of speed 0, which takes hours for large models");
  return syntax;
}

void benchmark(KernelsOptions const& options, Config const& config, Registries const& registries,
               Execution& execution) {
  std::string const machine = machine_name(usable_cpu_level());
  fmt::print("Machine: {}\n", machine);
  auto const path = kernel_cache_path(config.kernels.cache);
  if (!path.empty()) {
    add_measured_times(path, {});  // checks, before hours of measuring, that the times can be kept
  }
  KernelTimings const timings = benchmark_kernels({config, registries, execution, options.vocabulary, options.all});
  fmt::print("\nThe times are {}. Runs that have no checkpoint yet choose by the times that are kept.\n",
             keep_in_cache(path, {.kernels = {{machine, timings}}}));
}

}  // namespace

ExitCode run_kernels(Arguments const& arguments) {
  KernelsOptions options;
  parse_options(kernels_syntax(options), arguments);
  if (options.vocabulary < 4 || options.vocabulary > std::numeric_limits<std::int32_t>::max()) {
    throw UsageError("--vocabulary is {}; expected 4 to {}", options.vocabulary,
                     std::numeric_limits<std::int32_t>::max());
  }
  if (options.check && options.benchmark) {
    throw UsageError("--check and --benchmark exclude each other");
  }
  if (options.all && !options.benchmark) {
    throw UsageError("--all is for --benchmark, which is not given");
  }
  Config config = read_config(options);
  Runtime runtime;
  resolve_precision(config, usable_cpu_level());
  Registries registries;
  // A check prints all errors, not the first.
  bool const trusted = options.trust_plugins || options.check.has_value();
  register_everything({.plugins = read_plugins(config.plugins), .trust_plugins = trusted}, registries,
                      runtime.execution());
  registries.kernels.require_known(config.kernels);
  if (options.check) {
    return print_checks(registries, *options.check, runtime.execution());
  }
  if (options.benchmark) {
    benchmark(options, config, registries, runtime.execution());
  } else {
    use_cache(config, registries);
    print_registries(config, registries, runtime.execution(), options.vocabulary);
  }
  return ExitCode::done;
}

}  // namespace heddle
