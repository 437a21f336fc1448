#include "attention_maps.hpp"

#include <algorithm>
#include <cmath>
#include <heddle/core/parallel/host_values.hpp>
#include <span>

#include "inspection/model/probe.hpp"

namespace heddle {

namespace {

/// Gives `parameters`, those of a second model, the values of the first one, in the same memory. Kernels know a
/// parameter by its id, so that a packed copy serves both models.
void share_values(ParameterSet& parameters, ParameterSet const& owner) {
  parameters.arrange();
  parameters.bind(owner.values(), Tensor());
  auto original = owner.all().begin();
  for (Parameter& parameter : parameters.all()) {
    parameter.id = original->id;
    parameter.version = original->version;
    ++original;
  }
}

/// The calls of all attention sublayers in a forward pass over the pair.
std::vector<ObservedAttention> observe(AttentionMapSetup const& setup, SentencePair const& pair) {
  KernelRegistries kernels = setup.registries.kernels;
  KernelChoices choices = setup.config.kernels;
  auto const probe = AttentionProbe::install(kernels, choices);
  ParameterSet parameters(setup.parallel.mesh);
  Model const model(LayerSpec{.name = "",
                              .model = setup.config.model,
                              .dtype = dtype_of(setup.config.train.precision),
                              .kernels = {kernels, choices},
                              .parallel = setup.parallel,
                              .parameters = parameters},
                    setup.registries.layers, setup.vocabulary);
  share_values(parameters, setup.engine.parameters());
  Pack const pack = make_pack(std::span(&pair, 1), setup.ids);
  Arena arena;
  LayerContext context{setup.execution, arena, pack};
  probe->start();
  model.forward(context, 0);
  return probe->stop();
}

/// The mean of [heads, queries, keys] over the heads of all ranks of the group.
std::vector<double> mean_over_heads(ObservedAttention const& call, Communicator const& tensor) {
  SequenceAttention const& sequence = call.sequences.front();
  auto const size = static_cast<std::size_t>(sequence.queries * sequence.keys);
  std::vector<double> sums(size + 1);
  for (std::size_t index = 0; index < sequence.weights.size(); ++index) {
    sums[index % size] += sequence.weights[index];
  }
  sums.back() = static_cast<double>(call.heads);
  sums = sums_of(tensor, sums);
  double const heads = sums.back();
  sums.pop_back();
  for (double& sum : sums) {
    sum /= heads;
  }
  return sums;
}

}  // namespace

bool has_attention_maps(ParallelState const& parallel) {
  return kernel_memory_space() == MemorySpace::host && parallel.pipeline.size() == 1 && parallel.context.size() == 1 &&
         parallel.data.rank() == 0;
}

std::vector<AttentionMap> attention_maps(AttentionMapSetup const& setup, SentencePair const& pair) {
  auto const sublayers = attention_sublayers(describe_model(setup.config.model, setup.registries.layers));
  auto const crosses = [](AttentionSublayer const& each) { return each.queries != each.keys; };
  if (std::ranges::none_of(sublayers, crosses)) {
    return {};
  }
  auto const calls = observe(setup, pair);
  std::vector<AttentionMap> maps;
  // A layer of a plug-in may call attention more than once, or not at all: then it is not known whose the calls are.
  for (std::size_t index = 0; calls.size() == sublayers.size() && index < calls.size(); ++index) {
    if (crosses(sublayers[index])) {
      SequenceAttention const& sequence = calls[index].sequences.front();
      maps.push_back({sublayers[index].path, sequence.queries, sequence.keys,
                      mean_over_heads(calls[index], setup.parallel.tensor)});
    }
  }
  return maps;
}

GreyImage draw(AttentionMap const& map) {
  constexpr std::int64_t side = 12;  // pixels
  GreyImage image{side * map.keys, side * map.queries};
  for (std::int64_t row = 0; row < image.height; ++row) {
    for (std::int64_t column = 0; column < image.width; ++column) {
      double const weight = map.weights[static_cast<std::size_t>(row / side * map.keys + column / side)];
      image.pixels.push_back(static_cast<std::uint8_t>(std::lround(255 * std::clamp(weight, 0.0, 1.0))));
    }
  }
  return image;
}

}  // namespace heddle
