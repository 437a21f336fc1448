#pragma once

#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/core/parallel/communicator.hpp>
#include <heddle/core/training/optimizer.hpp>
#include <heddle/dist/optimizer/buffer_shards.hpp>
#include <memory>
#include <string>
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

/// A matrix and the rank that computes its function.
struct DealtMatrix {
  Parameter const* matrix;
  MatrixRank by;
};
/// All matrices of a stage, in the order of their places, with the ranks that compute them throughout a run: each in
/// the replica that owns it if the replicas have `parts` of the buffers, otherwise in any. The same on all ranks.
std::vector<DealtMatrix> deal_matrices(ParameterSet const& parameters, MeshShape const& mesh,
                                       BufferShards const* parts);

/// The middle of the updates by rules of whole parameters. It replaces the directions of matrices by the function of
/// the whole matrix (MatrixRule), which one rank computes, and which keeps its state there. Where ranks hold slices of
/// the matrix, the directions are gathered on that rank once, and the results scattered. If each replica has all
/// matrices, the replicas divide the work, too. Then it adds up the sizes of whole parameters (RuleDefinition::sizes).
/// Keeps a reference to the execution.
class MatrixUpdates {
 public:
  /// `parts`: the replicas' of the buffers; null: each has all. The parameters must have their rules. Allocates its
  /// buffers and the matrices' state, at zero. The first one of a world with further model axes is collective
  /// (ParallelState::group).
  MatrixUpdates(ParallelState const& parallel, ParameterSet const& parameters, Optimizer const& optimizer,
                std::shared_ptr<TensorOps> operations, Execution& execution, BufferShards const* parts);

  /// Called after the optimizer's `direct` in the run's update number `step`. Collective over the holders of slices
  /// and, where each replica has all matrices, the replicas.
  void run(Optimizer const& optimizer, std::int64_t step);

  std::int64_t bytes() const;
  /// The elements that the constructor allocates on this rank.
  static std::int64_t elements_for(ParameterSet const& parameters, Mesh const& mesh, BufferShards const* parts);
  /// The matrix's tensor of that key, flat, one of Parameter::whole_state; empty unless this rank keeps it.
  Tensor state(Parameter const& matrix, std::string const& key) const;

 private:
  struct Work {
    Optimizer::Matrix matrix;
    MatrixRank by;
    std::vector<Tensor> state;       ///< of the whole matrix; only on the rank that computes
    std::vector<Slice> slices;       ///< in the order of their holders; none: no axis splits the matrix
    std::vector<Tensor> directions;  ///< of the slices; only on the rank that computes
  };
  enum class Exchange : std::uint8_t { gather, scatter };

  /// Moves the slices of all matrices to the ranks that compute them, or back.
  void exchange(Exchange kind);
  /// Computes it if this rank does.
  void compute(Work const& work, std::int64_t step);
  void add_up_sizes(Optimizer const& optimizer) const;

  Mesh mesh_;
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
