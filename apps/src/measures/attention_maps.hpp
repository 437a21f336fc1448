#pragma once

#include <heddle/core/layers/registries.hpp>
#include <heddle/dist/training/training_engine.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "run/metrics/training_log.hpp"

namespace heddle {

/// The weights with which one cross-attention sublayer reads the source of one sentence pair.
struct AttentionMap {
  std::string path;  ///< "decoder.layers.0.cross_attention"
  std::int64_t queries = 0;
  std::int64_t keys = 0;
  std::vector<double> weights{};  ///< [queries, keys], the mean over all heads: each row's sum is 1
};

/// The model that trains, and its surroundings.
struct AttentionMapSetup {
  Config const& config;
  Registries const& registries;
  TrainingEngine const& engine;
  ParallelState const& parallel;
  Execution& execution;
  VocabularySizes vocabulary;
};

/// True on the ranks that must call view_attention together: those with data coordinate 0, where neither the model's
/// layers nor a sentence's tokens nor its parameters are divided among ranks, and kernels compute on the host. Heads
/// may be divided.
bool has_attention_maps(ParallelState const& parallel, ParallelConfig const& config);
/// The reason why no rank of this layout measures attention; nothing where one does.
std::optional<std::string> unmeasured_attention(ParallelState const& parallel, ParallelConfig const& config);

/// The weights of a model's attention sublayers, in the order of a forward pass.
struct AttentionView {
  std::vector<AttentionMap> maps;           ///< maps of the pack's first pair, one for each cross-attention sublayer
  std::vector<AttentionEntropy> entropies;  ///< without sublayers whose queries see one key at most or have prefixes
};
/// Observes attention in the samples of `pack`, with the targets' own tokens as the decoder's input and without
/// dropout. A second model is built for it, with the engine's own parameters. Weights are computed in float32 by a pass
/// of attention for each head_dim keys, so the pack should be small. Empty where a plug-in's layer does not call the
/// attention operation just once. Collective over the tensor group.
AttentionView view_attention(AttentionMapSetup const& setup, Pack const& pack);

/// A warning where training has not found what to read: all cross-attention sublayers, or all of an encoder, read their
/// keys almost evenly.
std::optional<std::string> uniform_attention(std::span<AttentionEntropy const> entropies);

/// A square of several pixels for each weight: black is 0, white 1. Targets are rows, the first one on top.
GreyImage draw(AttentionMap const& map);

}  // namespace heddle
