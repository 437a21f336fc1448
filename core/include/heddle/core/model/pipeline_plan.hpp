#pragma once

#include <cstdint>
#include <heddle/core/base/index_range.hpp>
#include <heddle/core/config/config.hpp>
#include <string>
#include <vector>

namespace heddle {

/// Which layers each pipeline stage holds. A part is a contiguous range; a micro-batch passes the virtual stages
/// v = part * stages + stage in order, so that of an interleaved plan first every stage's encoder part, then every
/// stage's decoder part.
struct PipelinePlan {
  std::vector<std::vector<IndexRange>> parts;  ///< [stage][part]: one part, or two when interleaved

  int stages() const { return static_cast<int>(parts.size()); }
  int parts_per_stage() const { return static_cast<int>(parts.front().size()); }
  int virtual_stages() const { return stages() * parts_per_stage(); }
  IndexRange const& layers(int virtual_stage) const {
    auto const stage = static_cast<std::size_t>(virtual_stage % stages());
    return parts[stage][static_cast<std::size_t>(virtual_stage / stages())];
  }
};

/// Cuts the layers into parallel.pipeline stages: as parallel.stage_layers says or, where that is empty, so that the
/// dearest part is as cheap as can be by estimate_part_cost. Cuts may lie inside either stack; an interleaved plan cuts
/// each stack into as many parts as there are stages, the encoder so that stages come out even. One stage is one part,
/// whatever the schedule. `vocabulary` is the target's. Throws ConfigError where the layers are too few for the stages,
/// or stage_layers' count or sum is wrong.
PipelinePlan plan_pipeline(ModelConfig const& model, ParallelConfig const& parallel, std::int64_t vocabulary);

/// Multiplications of a forward pass per token in matrix products with parameters, which is what a layer's time mostly
/// is: 4 d_model² per attention, 2 d_model d_ff for any other sublayer, vocabulary × d_model for the output projection,
/// which is the last layer's. Embeddings, norms and attention scores count as nothing.
std::int64_t estimate_part_cost(IndexRange const& layers, ModelConfig const& model, std::int64_t vocabulary);

/// Each stage's share of the whole estimated cost: they add up to 1.
std::vector<double> cost_shares(PipelinePlan const& plan, ModelConfig const& model, std::int64_t vocabulary);

/// "encoder layers 2 to 3, decoder layer 0": a range in words, for people.
std::string describe(IndexRange const& layers, ModelConfig const& model);

}  // namespace heddle
