#pragma once

#include <cstdint>
#include <heddle/core/layers/layer.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <memory>
#include <span>
#include <vector>

namespace heddle {

/// Moves rows between the replicas that have them and those that have the experts they are given to (Lepikhin et al.
/// 2021). The replicas of a run (ParameterSet::expert_ranks) divide the experts in their order. `plan` and the moves
/// are collective over the run; where there is only one rank the moves do nothing.
class ExpertExchange {
 public:
  using Counts = std::span<std::int32_t const>;

  ExpertExchange(LayerSpec const& spec, std::int64_t experts);

  /// Whether there is more than one rank to move rows between.
  bool moves() const { return ranks_.size() > 1; }

  /// The rows that one call of the layer moves.
  struct Rows {
    std::vector<std::int64_t> sent;      ///< [rank]: rows for its experts
    std::vector<std::int64_t> received;  ///< [rank]: rows of it for this rank's experts
    /// Rows of each group, in their order: one group for each of this rank's experts, or, where the rows of different
    /// ranks stay apart (ParameterAccess::keeps_ranks_apart), for each rank and expert.
    std::vector<std::int32_t> counts;
    Tensor order, inverse;  ///< int32 [received rows]: from the order of the ranks to that of the experts, and back

    std::int64_t total() const;  ///< received rows
  };
  /// `counts` [experts]: the rows of this rank for each. `order` and `inverse` are from the arena.
  Rows plan(LayerContext& context, Counts counts) const;

  /// y [rows.total(), …] = the rows for this rank's experts, in groups, of x [this rank's rows, …], by expert.
  void to_experts(LayerContext& context, Tensor const& x, Rows const& rows, Tensor const& y) const;
  /// The inverse: x = the rows of y.
  void from_experts(LayerContext& context, Tensor const& y, Rows const& rows, Tensor const& x) const;

 private:
  /// Makes one group for each expert of those for each rank and expert.
  void join_groups(LayerContext& context, Rows& rows) const;

  Communicator ranks_;
  std::int64_t experts_;
  std::shared_ptr<TensorOps> tensor_ops_;
};

}  // namespace heddle
