#pragma once

#include <cstdint>
#include <heddle/core/config/config.hpp>
#include <heddle/core/model/layout.hpp>
#include <string>
#include <vector>

namespace heddle {

/// The keys that a plan chooses: train.micro_batch_tokens, and the keys of [parallel] that spread a run over ranks.
struct LayoutChoice {
  MeshShape shape;
  bool sequence_parallel = false;
  ContextMode context_mode = ContextMode::ring;
  PipelineSchedule pipeline_schedule = PipelineSchedule::one_forward_one_backward;
  bool zero_bubble = false;
  bool shard_optimizer = false;
  bool shard_parameters = false;  ///< only with shard_optimizer
  int shard_ranks = 0;            ///< only with shard_parameters
  int expert = 1;                 ///< above 1 only with shard_optimizer
  std::int64_t micro_batch_tokens = 4096;

  int size(MeshAxis axis) const { return shape.size(axis); }
  /// The ranks of a grid that divide sequences, and those that split heads and columns.
  int context(Grid grid) const { return shape.size(MeshShape::context_axes(grid)); }
  int tensor(Grid grid) const { return shape.size(MeshShape::tensor_axes(grid)); }
  int ranks() const { return shape.ranks(); }
  /// Ranks with the same parameters.
  int replicas() const { return shape.size(replica_axes()); }
  bool operator==(LayoutChoice const&) const = default;
};

/// The configuration with these keys; parallel.stage_layers stays where the stages and their schedule do.
Config with_layout(Config config, LayoutChoice const& layout);
/// The layout that a configuration asks for on `ranks` ranks. Throws as make_mesh does.
LayoutChoice layout_of(Config const& config, ModelDescription const& model, int ranks);
/// The number of things in a layout that can go wrong or be slower than planned: 2 for each axis other than data, 1 for
/// each switch.
int complexity(LayoutChoice const& layout);
/// "tensor 2 sequence-parallel × pipeline 4 interleaved × data 8, optimizer sharded, micro-batches of 4,096".
std::string describe(LayoutChoice const& layout);

/// The machines that a run would get; ranks are numbered node by node.
struct Machines {
  int nodes = 1;
  int ranks_per_node = 1;
  std::int64_t node_memory = 0;  ///< bytes that the ranks of a node may take together

  int ranks() const { return nodes * ranks_per_node; }
};

/// Layouts that are not possible, for one reason.
struct Rejection {
  std::string limit;         ///< "memory of a node"
  std::string example;       ///< of the first of them: "tensor 4: …"
  std::int64_t layouts = 0;  ///< their number
};

/// The limit of layouts for which a batch has too few tokens.
inline constexpr char const* batch_limit = "the batch has too few tokens";
/// The limit of layouts whose ranks need more memory than a node has.
inline constexpr char const* memory_limit = "a node has too little memory";

/// Counts rejected layouts of a limit; the first example of each limit is kept.
void reject(std::vector<Rejection>& rejections, std::string const& limit, std::string const& example,
            std::int64_t layouts = 1);

/// The layouts of the machines' ranks that are worth a closer look, and why the others are not.
struct LayoutCandidates {
  std::vector<LayoutChoice> layouts;
  std::vector<Rejection> rejections{};
};

/// Every division of the ranks over the axes, with the switches that have an effect there and some sizes of
/// micro-batches. Left out are layouts that the model refuses (layout_problem), tensor groups that span nodes, context
/// groups whose ranks would have a few tokens of each sequence, and fewer micro-batches than data ranks × pipeline
/// stages. `longest_sequence`: as layout_problem. `batch_tokens`: of a global batch as the data have it. `undivided`:
/// the reason for which replicas cannot divide parameters; empty: they can.
LayoutCandidates list_layouts(Config const& config, ModelDescription const& model, Machines const& machines,
                              std::int64_t longest_sequence, std::int64_t batch_tokens,
                              std::string const& undivided = "");

}  // namespace heddle
