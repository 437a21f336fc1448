#pragma once

#include <heddle/core/layers/tensor_region.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <memory>

namespace heddle {

/// The passage of a side's stream between the grids of encoder and decoder: `redistribute` of PyTorch's DTensor. Its
/// backward pass is the passage in the other direction. Collective over context and tensor of the grid that it leaves.
class GridChange {
 public:
  /// `spec.parallel` has both grids.
  GridChange(LayerSpec const& spec, Side side);

  /// stream [this rank's rows in the grid `from`, columns] → [its rows in the other grid, columns], from the arena; the
  /// stream itself where the pack is not divided. `context` is that of the decoder's grid.
  Tensor move(LayerContext const& context, Tensor const& stream, Grid from) const;

 private:
  ParallelState parallel_;
  Side side_;
  std::shared_ptr<TensorOps> tensor_ops_;
};

}  // namespace heddle
