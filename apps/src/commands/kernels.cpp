#include <fmt/format.h>

#include <heddle/core/base/abi_tag.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/core/plugins/entry.hpp>
#include <heddle/core/plugins/loading.hpp>
#include <heddle/core/tensor/runtime.hpp>
#include <heddle/io/files/kernel_timings_file.hpp>
#include <iostream>
#include <limits>
#include <string_view>
#include <utility>

#include "commands.hpp"
#include "kernels/benchmark.hpp"
#include "kernels/cache.hpp"
#include "options.hpp"
#include "registration.hpp"

namespace heddle {
namespace {

static_assert(std::string_view(plugin::heddle_version) == HEDDLE_VERSION, "plugin_entry.hpp names another version");

/// One problem of each operation as a rank that trains the configured model has it, and what [kernels] says of the
/// operation.
struct ModelProblems {
  Config const& config;
  std::int64_t vocabulary;
  std::int64_t tensor_ranks = config.parallel.tensor;
  ModelConfig const& model = config.model;
  DType dtype = dtype_of(config.train.precision);
  DType statistics = statistics_dtype(dtype);

  /// An attention's output projection.
  auto of(Gemm const&) const {
    return std::pair(GemmProblem{.dtype = dtype,
                                 .b_dtype = statistics,
                                 .output_dtype = dtype,
                                 .m = config.train.micro_batch_tokens,
                                 .n = model.d_model,
                                 .k = model.d_model / tensor_ranks,
                                 .transpose_b = true,
                                 .bias = true},
                     config.kernels.gemm);
  }
  auto of(Attention const&) const {
    return std::pair(AttentionProblem{.dtype = dtype,
                                      .heads = model.heads / tensor_ranks,
                                      .head_dim = model.d_model / model.heads,
                                      .dropout_rate = static_cast<float>(model.attention_dropout)},
                     config.kernels.attention);
  }
  auto of(ResidualNorm const&) const {
    return std::pair(ResidualNormProblem{dtype, model.d_model, static_cast<float>(model.dropout)},
                     config.kernels.residual_norm);
  }
  auto of(Activation const&) const {
    return std::pair(ActivationProblem{dtype, model.activation}, config.kernels.activation);
  }
  auto of(SoftmaxCrossEntropy const&) const {
    return std::pair(SoftmaxCrossEntropyProblem{dtype, vocabulary / tensor_ranks},
                     config.kernels.softmax_cross_entropy);
  }
  auto of(Embedding const&) const {
    return std::pair(EmbeddingProblem{dtype, statistics, model.d_model}, config.kernels.embedding);
  }
  auto of(Adam const&) const { return std::pair(AdamProblem{statistics}, config.kernels.adam); }
  auto of(TensorOps const&) const { return std::pair(TensorOpsProblem{dtype}, config.kernels.tensor_ops); }
};

struct KernelsOptions {
  std::vector<std::string> plugins;
  std::string config;
  std::vector<std::string> overrides;
  bool benchmark = false;
  std::int64_t vocabulary = 10000;
  bool all = false;
};

/// Each implementation of an operation, the fastest first, and a mark at the one that would run.
template <class Interface>
void print_operation(KernelRegistry<Interface> const& registry, ModelProblems const& problems) {
  std::cout << "  " << Interface::operation << '\n';
  auto const entries = registry.by_speed();
  auto const [problem, choice] = problems.of(*entries.front().kernel);
  auto const taken = registry.select(choice, problem);
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

void print_registries(Registries& registries, ModelProblems const& problems) {
  ModelConfig const& model = problems.model;
  std::cout << fmt::format("Execution space: {}\nABI tag of plug-ins: {}\n", Runtime::execution_space(), abi_tag())
            << "\nOperations and their implementations, by speed; * would run, by the configuration, in training with\n"
            << fmt::format("{}, d_model {}, {} heads, {}, vocabulary {}:\n", name_of(problems.dtype), model.d_model,
                           model.heads, model.activation, problems.vocabulary);
  registries.kernels.for_each([&](auto& registry) { print_operation(registry, problems); });
  std::cout << "\nLayers, for model.encoder_sublayers and model.decoder_sublayers:\n";
  for (LayerRegistry::Entry const& entry : registries.layers.entries()) {
    std::cout << fmt::format("    {:<21}   {}\n", entry.name, entry.origin);
  }
}

CommandSyntax kernels_syntax(KernelsOptions& options) {
  namespace po = boost::program_options;
  CommandSyntax syntax;
  syntax.name = "kernels";
  syntax.usage = "[--benchmark] [--config RUN.toml] [--set SECTION.KEY=VALUE]... [--plugin LIBRARY]... [options]";
  syntax.summary =
      "Lists what is registered: each operation's implementations, which of them the configured model would run in "
      "the\n"
      "configured precision, and the layers.\n"
      "`kernels.OPERATION` in the configuration names one instead of `auto`.\n"
      "With --benchmark: times the implementations in a training step of the configured model and keeps the times in\n"
      "kernels.cache, so that `auto` takes the fastest in runs on this machine that have no checkpoint yet.";
  syntax.options.add_options()  //
      ("plugin", po::value(&options.plugins)->composing()->value_name("LIBRARY"),
       "load this plug-in first; repeatable")  //
      ("benchmark", po::bool_switch(&options.benchmark),
       "time implementations")  //
      ("config", po::value(&options.config)->value_name("RUN.toml"),
       "the configuration; without it every key has its default, which is the paper's base model")  //
      ("set", po::value(&options.overrides)->value_name("SECTION.KEY=VALUE")->composing(),
       "a key's value in place of the file's; can be given again")  //
      ("vocabulary", po::value(&options.vocabulary)->default_value(options.vocabulary)->value_name("PIECES"),
       "for synthetic sentences, where the configuration has no data.train, and for the list")  //
      ("all", po::bool_switch(&options.all),
       "with --benchmark: time implementations of speed 0, too: hours for large models");
  return syntax;
}

void benchmark(KernelsOptions const& options, Config const& config, Registries const& registries,
               Execution& execution) {
  fmt::print("Machine: {}\n", machine_name());
  auto const path = kernel_cache_path(config.kernels.cache);
  if (!path.empty()) {
    add_kernel_timings(path, {});  // Before hours of measuring: whether the times can be kept.
  }
  KernelTimings const timings = benchmark_kernels({config, registries, execution, options.vocabulary, options.all});
  if (path.empty()) {
    fmt::print("\nNothing is kept: {}.\n", config.kernels.cache.empty()
                                               ? "kernels.cache is \"\""
                                               : "there is neither XDG_CACHE_HOME nor HOME for kernels.cache");
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
  if (options.vocabulary < 4 || options.vocabulary > std::numeric_limits<std::int32_t>::max()) {
    throw UsageError(fmt::format("--vocabulary is {}; expected 4 to {}", options.vocabulary,
                                 std::numeric_limits<std::int32_t>::max()));
  }
  if (options.all && !options.benchmark) {
    throw UsageError("--all is for --benchmark, which is not given");
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
    use_cache(config, registries);
    print_registries(registries, {config, options.vocabulary});
  }
  return static_cast<int>(ExitCode::done);
}

}  // namespace heddle
