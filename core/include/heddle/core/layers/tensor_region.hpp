#pragma once

#include <heddle/core/layers/layer.hpp>

namespace heddle {

/// The boundary (Megatron's f and g) between the residual stream and work that is split over the tensor group. Inside,
/// every rank has all of the side's rows and a part of the heads or columns. Outside, every rank has the whole stream
/// (Shoeybi et al. 2019) or, if context.row_split says so, share(rows, rank, ranks) of its rows (Korthikanti et al.
/// 2022). The two passages are conjugate: each is the backward pass of the other. Both are collective over the tensor
/// group; with one rank they do nothing.
class TensorRegion {
 public:
  TensorRegion(ParallelState const& parallel, Side side) : tensor_(parallel.tensor), side_(side) {}

  /// stream [stream rows, columns] → [rows, columns]: the same tensor, or gathered into the arena.
  Tensor enter(LayerContext& context, Tensor const& stream) const;
  /// A tensor that `leave` accepts: `stream` itself, or [rows, columns] from the arena.
  Tensor partial_of(LayerContext& context, Tensor const& stream) const;
  /// stream = the sum of the ranks' partials [rows, columns] (this rank's rows of it). `partial` is partial_of's
  /// result.
  void leave(LayerContext& context, Tensor const& partial, Tensor const& stream) const;

  /// Rows of the stream on this rank where the side has `rows`.
  static std::int64_t stream_rows(LayerContext const& context, std::int64_t rows) {
    return share(rows, context.row_split.rank, context.row_split.ranks).count();
  }
  /// All rows of the side.
  std::int64_t rows(LayerContext const& context) const { return context.pack.rows(side_).tokens; }
  bool split() const { return tensor_.size() > 1; }
  /// True on the rank that adds biases and positions, which must be added once.
  bool first() const { return tensor_.rank() == 0; }

 private:
  Communicator tensor_;
  Side side_;
};

}  // namespace heddle
