#include "attention_maps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <numeric>
#include <span>

#include "inference/probe.hpp"

namespace heddle {

namespace {

/// Whether the system grants the arena's block.
bool is_granted(Arena& arena) {
  try {
    ArenaScope const scope(arena);
    arena.allocate(DType::float32, {1});
    return true;
  } catch (Error const&) {
    return false;
  }
}

/// The calls of all attention sublayers in a forward pass over the pack. None where address space is limited (`ulimit
/// -v`) and a rank of the tensor group has not enough left: training continues without them.
std::vector<ObservedAttention> observe(AttentionMapSetup const& setup, Pack const& pack) {
  Arena arena;
  if (any_of(setup.parallel.tensor, !is_granted(arena))) {
    return {};
  }
  KernelRegistries kernels = setup.registries.kernels;
  KernelChoices choices = setup.config.kernels;
  auto const probe = std::make_shared<AttentionProbe>(kernels.of<Attention>());
  install_probe<Attention>(kernels, choices, probe);
  ParameterSet parameters(setup.parallel.mesh);
  Model const model(LayerSpec{.name = "",
                              .model = setup.config.model,
                              .dtype = dtype_of(setup.config.train.precision),
                              .kernels = {kernels, choices},
                              .parallel = setup.parallel,
                              .parameters = parameters},
                    setup.registries.layers, setup.vocabulary);
  parameters.share_values(setup.engine.parameters(), [](std::string const&) { return true; });
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

/// The sum over the call's heads and queries of the entropy of each query's weights, divided by the largest possible
/// one, and the number of these queries, each counted once for each head.
struct EntropySum {
  double sum = 0;
  double count = 0;
};
EntropySum entropy_of(ObservedAttention const& call) {
  EntropySum result;
  for (SequenceAttention const& sequence : call.sequences) {
    for (std::int64_t query = 0; query < sequence.queries && !call.mask.is(MaskKind::prefix); ++query) {
      std::int64_t visible = 0;
      for (std::int64_t key = 0; key < sequence.keys; ++key) {
        visible += call.mask.sees(0, query + sequence.keys - sequence.queries, key) ? 1 : 0;
      }
      for (std::int64_t head = 0; head < call.heads && visible > 1; ++head) {
        auto const row = sequence.weights.begin() + (head * sequence.queries + query) * sequence.keys;
        result.sum += std::accumulate(row, row + sequence.keys, 0.0,
                                      [](double sum, double weight) {
                                        return weight == 0 ? sum : sum - weight * std::log(weight);
                                      }) /
                      std::log(static_cast<double>(visible));
        ++result.count;
      }
    }
  }
  return result;
}

}  // namespace

bool has_attention_maps(ParallelState const& parallel, ParallelConfig const& config) {
  return !unmeasured_attention(parallel, config) && parallel.data.rank() == 0;
}

std::optional<std::string> unmeasured_attention(ParallelState const& parallel, ParallelConfig const& config) {
  if (kernel_memory_space() != MemorySpace::host) {
    return "kernels compute on a device";
  }
  for (auto const& [axis, size] : {std::pair(MeshAxis::pipeline, parallel.pipeline.size()),
                                   std::pair(MeshAxis::context, parallel.context.size())}) {
    if (size > 1) {
      return fmt::format("with parallel.{} = {} no rank has a whole forward pass of a sentence", axis.name(), size);
    }
  }
  if (parallel.encoder) {
    return "with parallel.encoder_tensor no rank has the same heads of all stacks";
  }
  if (divides_model(config) && parallel.replicas.size() > 1) {
    return "with parallel.shard_parameters or parallel.expert no rank has all parameters";
  }
  return std::nullopt;
}

AttentionView view_attention(AttentionMapSetup const& setup, Pack const& pack) {
  auto const sublayers = attention_sublayers(describe_model(setup.config.model, setup.registries.layers));
  auto const calls = observe(setup, pack);
  if (calls.size() != sublayers.size()) {
    return {};  // a layer of a plug-in calls attention more than once, or not at all: which call is whose is not known
  }
  AttentionView view;
  std::vector<double> sums;
  for (ObservedAttention const& call : calls) {
    EntropySum const own = entropy_of(call);
    sums.insert(sums.end(), {own.sum, own.count});
  }
  sums = sums_of(setup.parallel.tensor, sums);
  for (std::size_t index = 0; index < sublayers.size(); ++index) {
    auto const& [path, queries, keys, guided] = sublayers[index];
    if (double const count = sums[2 * index + 1]; count > 0) {
      view.entropies.push_back({path, sums[2 * index] / count, keys == Side::source});
    }
    if (queries != keys) {
      SequenceAttention const& first = calls[index].sequences.front();
      view.maps.push_back({path, first.queries, first.keys, mean_over_heads(calls[index], setup.parallel.tensor)});
    }
  }
  return view;
}

std::optional<std::string> uniform_attention(std::span<AttentionEntropy const> entropies) {
  constexpr double nearly_uniform = 0.98;
  for (bool const cross : {true, false}) {
    double min = 2;
    for (AttentionEntropy const& each : entropies) {
      if (each.of_source && each.path.ends_with("cross_attention") == cross) {
        min = std::min(min, each.mean);
      }
    }
    if (min >= nearly_uniform && min <= 1.5) {
      return fmt::format(
          "the {} is almost uniform in every layer (entropy at least {:.3f} of the maximum), after the warm-up: the "
          "model {}. Such a run seldom recovers: start again with norm = \"pre\", a lower learning rate, a longer "
          "warm-up or clip_norm",
          cross ? "cross-attention" : "encoder's self-attention", min,
          cross ? "writes without reading the source" : "does not distinguish the source's tokens");
    }
  }
  return std::nullopt;
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
