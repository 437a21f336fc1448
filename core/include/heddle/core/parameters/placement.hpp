#pragma once

#include <cstdint>
#include <heddle/core/parallel/mesh.hpp>
#include <heddle/core/tensor/slice.hpp>
#include <heddle/core/tensor/tensor.hpp>
#include <vector>

namespace heddle {

/// Where a parameter is on a mesh, on which everything agrees that sums, updates, counts, compares, saves or loads it.
/// A value, equal on all ranks that hold the parameter. On each stage that has it every rank holds a slice of it: of
/// the whole where no axis splits it. Ranks that differ only along axes that do not split it hold copies (`Replicate`
/// in PyTorch's DTensor; `shards` is its `Shard`, by tensor axis, and `gradient_partial_over` its `Partial`; the names
/// of shape and offset are those of Megatron's ShardedTensor). The functions take a mesh that need not have the axes.
struct Placement {
  /// Who updates it, among the ranks that sum its gradient: replica_axes.
  enum class Owner : std::uint8_t {
    divided,  ///< each rank its share of the elements
    single    ///< one rank all of them, as an update of a matrix needs
  };

  Shape global_shape;
  /// The mesh axes that split each tensor axis, the outermost first; later tensor axes are not split. Rank r of their
  /// product holds share(extent, r, ranks) of the axis. None of replica_axes and pipeline.
  std::vector<MeshAxes> shards = {};
  /// Axes whose ranks each hold a part of the gradient's sum. replica_axes always do and need not be named; of the
  /// stages that hold it all do.
  MeshAxes gradient_partial_over = {};
  /// Pipeline coordinates that hold copies, ascending. Empty: only one.
  std::vector<int> stages = {};
  Owner owner = Owner::divided;

  /// `shards` where `over` splits one tensor axis; none where that is below 0.
  static std::vector<MeshAxes> sharded_along(int axis, MeshAxis over = MeshAxis::tensor);

  /// The number of ranks that a tensor axis is split over.
  int shards_along(int axis, MeshShape const& mesh) const;
  bool is_split_over(MeshAxis axis) const;
  bool is_partial_over(MeshAxis axis) const;
  bool on_several_stages() const { return stages.size() > 1; }
  /// The part that a rank of the mesh holds.
  Slice slice(MeshShape const& mesh, int rank) const;
  /// Whether a sum over the model counts this rank's slice: of the copies along MeshShape::model_axes and on the stages
  /// only the first.
  bool counts(Mesh const& mesh) const;
};

}  // namespace heddle
