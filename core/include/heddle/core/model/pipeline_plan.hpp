#pragma once

#include <cstdint>
#include <heddle/core/base/index_range.hpp>
#include <heddle/core/model/description.hpp>
#include <string>
#include <vector>

namespace heddle {

struct ParallelConfig;

/// The layers of each pipeline stage. A part is a contiguous range; a micro-batch passes the virtual stages
/// v = part * stages + stage in order: in an interleaved plan first every stage's part of the first stack, then
/// every stage's part of the second.
struct PipelinePlan {
  std::vector<std::vector<IndexRange>> parts;  ///< [stage][part]: one part, or one of each stack when interleaved

  int stages() const { return static_cast<int>(parts.size()); }
  int parts_per_stage() const { return static_cast<int>(parts.front().size()); }
  int virtual_stages() const { return stages() * parts_per_stage(); }
  IndexRange const& layers(int virtual_stage) const {
    auto const stage = static_cast<std::size_t>(virtual_stage % stages());
    return parts[stage][static_cast<std::size_t>(virtual_stage / stages())];
  }
};

/// Cuts the layers into parallel.pipeline stages: as given by parallel.stage_layers or, if it is empty, so that the
/// operations of the most expensive part (part_cost) are minimal. Cuts may lie inside any stack. An interleaved plan
/// cuts each stack into as many parts as there are stages, so that each stage's parts together cost about the same.
/// One stage is one part, whatever the schedule. `vocabulary` is the last stack's. Throws ConfigError where the layers
/// are too few for the stages, or stage_layers' count or sum is wrong.
PipelinePlan plan_pipeline(ModelDescription const& model, ParallelConfig const& parallel, std::int64_t vocabulary);

/// The cost of a forward pass through these layers: those that the layers declare (LayerTraits), and output projection
/// and cross-entropy, which belong to the last layer. Embeddings, norms and residual sums are not counted.
Cost part_cost(IndexRange const& layers, ModelDescription const& model, std::int64_t vocabulary,
               LayerLoad const& load = {});

/// The operations of a training step's matrix products by the model's definition: a forward pass, and twice that for
/// the backward pass, except for gradients of frozen weights; activations that are computed again do not count.
/// `tokens` are those of each stack, in sentences of `sequence` tokens.
double training_operations(ModelDescription const& model, std::int64_t vocabulary, std::vector<double> const& tokens,
                           double sequence);

/// Each stage's fraction of the operations for a token; their sum is 1.
std::vector<double> cost_shares(PipelinePlan const& plan, ModelDescription const& model, std::int64_t vocabulary);

/// The range for messages: "encoder layers 3 to 4, decoder layer 1". As in the file, a stack's layers count
/// from 1.
std::string describe(IndexRange const& layers, ModelDescription const& model);

}  // namespace heddle
