#pragma once

#include <cstdint>
#include <heddle/core/layers/layer.hpp>
#include <span>
#include <vector>

namespace heddle {

/// Moves rows between the replicas that have them and those that have the experts they are given to (Lepikhin et al.
/// 2021). The replicas of a run (ParameterSet::expert_ranks) divide the experts in their order. Every call is
/// collective over the run.
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
    std::vector<std::int32_t> counts;    ///< [rank, own experts]: the received rows, which are in this order

    std::int64_t total() const;  ///< received rows
  };
  /// `counts` [experts]: the rows of this rank for each.
  Rows plan(Counts counts) const;

  /// y [rows.total(), …] = the rows for this rank's experts, of x [this rank's rows, …], by expert. Nothing where it
  /// does not move rows, as the next one.
  void to_experts(Tensor const& x, Rows const& rows, Tensor const& y) const;
  /// The inverse: x = the rows of y.
  void from_experts(Tensor const& y, Rows const& rows, Tensor const& x) const;

 private:
  Communicator ranks_;
  std::int64_t experts_;
};

}  // namespace heddle
