#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/error.hpp>
#include <heddle/core/plugin.hpp>
#include <heddle/core/plugin_entry.hpp>
#include <heddle/core/runtime.hpp>
#include <heddle/io/kernel_timings_file.hpp>
#include <iostream>
#include <limits>
#include <string_view>

#include "commands.hpp"
#include "kernel_benchmark.hpp"
#include "kernel_cache.hpp"
#include "options.hpp"
#include "registration.hpp"

namespace heddle {
namespace {

static_assert(std::string_view(plugin::heddle_version) == HEDDLE_VERSION, "plugin_entry.hpp names another version");

/// A problem as a Transformer of the paper's size has it, in float32.
struct TypicalProblems {
  std::string activation;

  auto of(Gemm const&) const { return GemmProblem{.m = 4096, .n = 512, .k = 512, .transpose_b = true, .bias = true}; }
  auto of(Attention const&) const { return AttentionProblem{.heads = 8, .head_dim = 64}; }
  auto of(ResidualNorm const&) const { return ResidualNormProblem{.d_model = 512}; }
  auto of(Activation const&) const { return ActivationProblem{.function = activation}; }
  auto of(SoftmaxCrossEntropy const&) const { return SoftmaxCrossEntropyProblem{.vocabulary_size = 32000}; }
  auto of(Embedding const&) const { return EmbeddingProblem{.d_model = 512}; }
  auto of(Adam const&) const { return AdamProblem{}; }
  auto of(TensorOps const&) const { return TensorOpsProblem{}; }
};

struct KernelsOptions {
  std::vector<std::string> plugins;
  TypicalProblems problems;
  std::string config;
  std::vector<std::string> overrides;
  bool benchmark = false;
  std::int64_t vocabulary = 10000;
  bool all = false;
};

/// Each implementation of an operation, the fastest first, and a mark at the one that `auto` would run.
template <class Interface>
void print_operation(KernelRegistry<Interface> const& registry, TypicalProblems const& problems) {
  std::cout << "  " << Interface::operation << '\n';
  auto const entries = registry.by_speed();
  bool const any = std::any_of(entries.begin(), entries.end(),
                               [&](auto const& e) { return e.kernel->supports(problems.of(*e.kernel)); });
  auto const taken = any ? registry.select("auto", problems.of(*entries.front().kernel)) : nullptr;
  for (auto const& entry : entries) {
    std::cout << fmt::format("  {} {:<12} speed {:>2}   {}\n", entry.kernel == taken ? '*' : ' ', entry.name,
                             entry.speed, entry.origin);
  }
}

/// What this machine has measured, and what `auto` makes of it.
template <class Interface>
void print_measured(KernelRegistry<Interface> const& registry, KernelTimings const& timings) {
  auto const operation = timings.find(Interface::operation);
  if (operation == timings.end()) {
    return;
  }
  for (auto const& [key, times] : operation->second) {
    std::vector<std::string> timed;
    std::string untimed;  // before all that are timed; whether they support the problem, its key does not tell
    for (auto const& entry : registry.by_speed()) {
      if (times.contains(entry.name)) {
        timed.push_back(entry.name);
      } else if (timed.empty()) {
        untimed += fmt::format(" + {} not timed", entry.name);
      }
    }
    std::string const choice = timed.empty() ? "" : measured_choice(times, timed);
    std::cout << fmt::format("  {}: {}\n   {}", Interface::operation, key, untimed);
    for (std::string const& name : timed) {
      std::cout << fmt::format(" {}{} {:.3f} ms", name == choice ? "* " : "  ", name, times.at(name) * 1e3);
    }
    std::cout << '\n';
  }
}

/// The cache's times go into the registries and are shown.
void use_cache(Config const& config, Registries& registries) {
  auto const path = kernel_cache_path(config.kernels.cache);
  std::vector<std::string> notes;
  KernelTimings const timings = read_own_timings(path, notes);
  registries.kernels.set_timings(timings);
  std::cout << fmt::format("Machine: {}\n", machine_name());
  for (std::string const& note : notes) {
    std::cerr << fmt::format("note: {}\n", note);
  }
  if (timings.empty()) {
    std::cout << "Nothing is measured on this machine: `auto` goes by speed (--benchmark measures).\n";
  } else {
    std::cout << fmt::format(
        "Measured on this machine, in {}; * is what `auto` takes, but where it supports the\nproblem a +, which is "
        "faster by speed and was not timed:\n",
        path.string());
    registries.kernels.for_each([&](auto& registry) { print_measured(registry, timings); });
  }
  std::cout << '\n';
}

void print_registries(Registries& registries, TypicalProblems const& problems) {
  std::cout
      << fmt::format("Execution space: {}\nABI tag of plug-ins: {}\n", Runtime::execution_space(), abi_tag())
      << "\nOperations and their implementations, by speed; `auto` runs the one marked * where the problem is of\n"
      << fmt::format("the default model's shape, in float32, and the activation function is {}:\n",
                     problems.activation);
  registries.kernels.for_each([&](auto& registry) { print_operation(registry, problems); });
  std::cout << "\nLayers, for model.encoder_sublayers and model.decoder_sublayers:\n";
  for (LayerRegistry::Entry const& entry : registries.layers.entries()) {
    std::cout << fmt::format("    {:<21}   {}\n", entry.name, entry.origin);
  }
}

void require_activation(KernelRegistry<Activation> const& registry, std::string const& function) {
  auto const& entries = registry.entries();
  if (std::none_of(entries.begin(), entries.end(),
                   [&](auto const& entry) { return entry.kernel->supports({.function = function}); })) {
    throw ConfigError(
        fmt::format("--activation is \"{}\", which nothing registered computes; expected relu, gelu, or "
                    "the function of a plug-in given with --plugin",
                    function));
  }
}

CommandSyntax kernels_syntax(KernelsOptions& options) {
  namespace po = boost::program_options;
  CommandSyntax syntax;
  syntax.name = "kernels";
  syntax.usage = "[--benchmark [--config RUN.toml] [--set SECTION.KEY=VALUE]...] [--plugin LIBRARY]... [options]";
  syntax.summary =
      "Lists what is registered: each operation's implementations, which of them would run, and the layers.\n"
      "`kernels.OPERATION` in the configuration names one instead of `auto`.\n"
      "With --benchmark: times the implementations in a training step of the configured model and keeps the times in\n"
      "kernels.cache, so that `auto` takes the fastest in runs on this machine that have no checkpoint yet.";
  syntax.options.add_options()  //
      ("plugin", po::value(&options.plugins)->composing()->value_name("LIBRARY"),
       "load this plug-in first; repeatable")  //
      ("activation", po::value(&options.problems.activation)->default_value("relu")->value_name("FUNCTION"),
       "the activation function for which `auto` is shown")  //
      ("benchmark", po::bool_switch(&options.benchmark),
       "time implementations")  //
      ("config", po::value(&options.config)->value_name("RUN.toml"),
       "the configuration; without it every key has its default, which is the paper's base model")  //
      ("set", po::value(&options.overrides)->value_name("SECTION.KEY=VALUE")->composing(),
       "a key's value in place of the file's; can be given again")  //
      ("vocabulary", po::value(&options.vocabulary)->default_value(options.vocabulary)->value_name("PIECES"),
       "for made-up sentences, where the configuration has no data.train")  //
      ("all", po::bool_switch(&options.all), "time implementations of speed 0, too: hours for large models");
  return syntax;
}

void benchmark(KernelsOptions const& options, Config const& config, Registries const& registries,
               Execution& execution) {
  if (options.vocabulary < 4 || options.vocabulary > std::numeric_limits<std::int32_t>::max()) {
    throw UsageError(fmt::format("--vocabulary is {}; expected 4 to {}", options.vocabulary,
                                 std::numeric_limits<std::int32_t>::max()));
  }
  fmt::print("Machine: {}\n", machine_name());
  KernelTimings const timings = benchmark_kernels({config, registries, execution, options.vocabulary, options.all});
  auto const path = kernel_cache_path(config.kernels.cache);
  if (path.empty()) {
    fmt::print("\nkernels.cache names no file: nothing is kept.\n");
    return;
  }
  add_kernel_timings(path, {{machine_name(), timings}});
  fmt::print("\nKept in {}; runs that have no checkpoint yet choose by it from now on.\n", path.string());
}

}  // namespace

int run_kernels(Arguments const& arguments) {
  KernelsOptions options;
  if (!parse_options(kernels_syntax(options), arguments)) {
    return static_cast<int>(ExitCode::done);
  }
  Config const config = options.config.empty() ? parse_config("", "the defaults", options.overrides)
                                               : load_config(options.config, options.overrides);
  std::vector<std::string> plugins = config.plugins.paths;
  plugins.insert(plugins.end(), options.plugins.begin(), options.plugins.end());
  Runtime runtime;
  Registries registries;
  register_everything(plugins, registries);
  if (options.benchmark) {
    benchmark(options, config, registries, runtime.execution());
  } else {
    require_activation(registries.kernels.activation, options.problems.activation);
    use_cache(config, registries);
    print_registries(registries, options.problems);
  }
  return static_cast<int>(ExitCode::done);
}

}  // namespace heddle
