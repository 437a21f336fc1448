#pragma once

#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/core/parallel/communicator.hpp>
#include <heddle/core/training/optimizer.hpp>
#include <memory>
#include <vector>

namespace heddle {

struct Execution;

/// A rank among those that may compute the function of a matrix.
struct MatrixRank {
  int replica = 0;
  int holder = 0;  ///< its place along MeshShape::model_axes

  bool operator==(MatrixRank const&) const = default;
};

/// Deals matrices out to `replicas` times the mesh's holders of slices: in the order of falling Parameter::matrix_cost,
/// each to the rank with the least work so far. A matrix that no axis splits is work of all holders in the replica.
std::vector<MatrixRank> deal_matrices(std::vector<Parameter const*> const& matrices, MeshShape const& mesh,
                                      int replicas);

/// The middle of the updates by rules over matrices (MatrixRule): replaces the directions by the function of the whole
/// matrix, which one rank computes. Where ranks hold slices of the matrix, the directions are gathered on that rank
/// once, and the results scattered. If each replica keeps the state of all matrices, the replicas divide the work, too.
/// Keeps a reference to the execution.
class MatrixUpdates {
 public:
  /// For the optimizer's matrices. `divided`: other replicas keep the state of other matrices. Allocates its buffers.
  /// The first one of a world with further model axes is collective (ParallelState::group).
  MatrixUpdates(ParallelState const& parallel, Optimizer const& optimizer, std::shared_ptr<TensorOps> operations,
                Execution& execution, bool divided);

  /// Called after Optimizer::direct. Collective over the holders of slices and, unless `divided`, the replicas.
  void run();

  std::int64_t bytes() const { return received_.bytes() + whole_.bytes(); }
  /// The elements that the constructor allocates on this rank for such matrices.
  static std::int64_t elements_for(std::vector<Parameter const*> const& matrices, Mesh const& mesh, bool divided);

 private:
  struct Work {
    Optimizer::Matrix matrix;
    MatrixRank by;
    std::vector<Slice> slices;       ///< in the order of their holders; none: no axis splits the matrix
    std::vector<Tensor> directions;  ///< of the slices; only on the rank that computes
  };
  enum class Exchange : std::uint8_t { gather, scatter };

  /// Moves the slices of all matrices to the ranks that compute them, or back.
  void exchange(Exchange kind);
  /// Computes it if this rank does.
  void compute(Work const& work);

  Communicator replicas_;  ///< that divide the work
  Communicator holders_;
  MatrixRank own_;
  std::shared_ptr<TensorOps> operations_;
  Execution& execution_;
  std::vector<Work> works_;
  Tensor received_;  ///< other ranks' slices
  Tensor whole_;     ///< the matrix that is computed
};

}  // namespace heddle
