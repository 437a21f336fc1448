#pragma once

#include <heddle/core/layers/registries.hpp>
#include <heddle/dist/training/training_engine.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "run_directory/training_log.hpp"

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
  SideIds ids;
};

/// True on the ranks that must call attention_maps together: those with data coordinate 0, where neither the model's
/// layers nor a sentence's tokens are divided among ranks, and kernels compute on the host. Heads may be divided.
bool has_attention_maps(ParallelState const& parallel);

/// Those of every cross-attention sublayer, from below, with the target's own tokens as the decoder's input and without
/// dropout; none for a model without such sublayers. A second model is built for it, with the engine's own parameters
/// and the reference implementation of attention, so the pair should be short. Collective over the tensor group.
std::vector<AttentionMap> attention_maps(AttentionMapSetup const& setup, SentencePair const& pair);

/// How evenly each attention sublayer reads its keys in the samples of `pack`, which should be short; see
/// attention_maps, as which it works. Sublayers whose queries see one key at most, or have prefixes, are left out.
/// Empty where a plug-in's layer does not call the attention operation just once.
std::vector<AttentionEntropy> attention_entropies(AttentionMapSetup const& setup, Pack const& pack);

/// A warning where training has not found what to read: all cross-attention sublayers, or all of an encoder, read their
/// keys almost evenly.
std::optional<std::string> uniform_attention(std::span<AttentionEntropy const> entropies);

/// A square of several pixels for each weight: black is 0, white 1. Targets are rows, the first one on top.
GreyImage draw(AttentionMap const& map);

}  // namespace heddle
