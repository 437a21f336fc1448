#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/error.hpp>
#include <heddle/core/plugin.hpp>
#include <heddle/core/plugin_entry.hpp>
#include <heddle/core/runtime.hpp>
#include <iostream>
#include <string_view>

#include "commands.hpp"
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

/// Each implementation of an operation, the fastest first, and a mark at the one that `auto` would run.
template <class Interface>
void print_operation(KernelRegistry<Interface> const& registry, TypicalProblems const& problems) {
  std::cout << "  " << Interface::operation << '\n';
  auto entries = registry.entries();
  std::stable_sort(entries.begin(), entries.end(), [](auto const& a, auto const& b) { return a.speed > b.speed; });
  bool taken = false;
  for (auto const& entry : entries) {
    bool const supported = entry.kernel->supports(problems.of(*entry.kernel));
    std::cout << fmt::format("  {} {:<12} speed {:>2}   {}\n", supported && !taken ? '*' : ' ', entry.name, entry.speed,
                             entry.origin);
    taken = taken || supported;
  }
}

void print_registries(Registries& registries, TypicalProblems const& problems) {
  std::cout
      << fmt::format("Execution space: {}\nABI tag of plug-ins: {}\n", Runtime::execution_space(), abi_tag())
      << "\nOperations and their implementations, by speed; `auto` runs the one marked * where the problem is of\n"
      << fmt::format("ordinary shape, in float32, and the activation function is {}:\n", problems.activation);
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

}  // namespace

int run_kernels(Arguments const& arguments) {
  namespace po = boost::program_options;
  std::vector<std::string> plugins;
  TypicalProblems problems;
  CommandSyntax syntax;
  syntax.name = "kernels";
  syntax.usage = "[--plugin LIBRARY]... [options]";
  syntax.summary =
      "Lists what is registered: each operation's implementations, which of them would run, and the layers.\n"
      "`kernels.OPERATION` in the configuration names one instead of `auto`.";
  syntax.options.add_options()                                                                                    //
      ("plugin", po::value(&plugins)->composing()->value_name("LIBRARY"), "load this plug-in first; repeatable")  //
      ("activation", po::value(&problems.activation)->default_value("relu")->value_name("FUNCTION"),
       "the activation function for which `auto` is shown");
  if (!parse_options(syntax, arguments)) {
    return static_cast<int>(ExitCode::done);
  }
  Runtime const runtime;
  Registries registries;
  register_everything(plugins, registries);
  require_activation(registries.kernels.activation, problems.activation);
  print_registries(registries, problems);
  return static_cast<int>(ExitCode::done);
}

}  // namespace heddle
