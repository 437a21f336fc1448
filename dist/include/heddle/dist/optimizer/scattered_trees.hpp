#pragma once

#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/core/parallel/communicator.hpp>
#include <heddle/core/parameters/parameter.hpp>
#include <heddle/dist/optimizer/buffer_shards.hpp>
#include <heddle/dist/optimizer/gradient_tree.hpp>
#include <memory>
#include <vector>

namespace heddle {

struct Execution;

/// The sums of GradientTree, with its bits, where each replica gets only its own parts of the buffers. The data ranks
/// compute neighbouring micro-batches at the same time: data rank r of d number r, then r + d, and so on. What d of
/// them leave goes to the trees before the next d begin, so that no rank keeps sums of parts that are not its own.
///
/// A step: `begin`; for each round `add` once for each section of gradients that the replicas divide, then
/// `round_done`; then `finish`. All are collective over the replicas. Keeps references to the parameters and the
/// execution.
class ScatteredTrees {
 public:
  /// `parts` divides the gradients' buffer. Allocates the sums, but for those of subtrees, which the first steps do.
  ScatteredTrees(ParallelState const& parallel, ParameterSet const& parameters, BufferShards const& parts,
                 std::shared_ptr<TensorOps> operations, Execution& execution);

  /// A step of `micro_batches`, at least 1. loss_sums, float64 [n], and the gradients' buffer must be zero.
  void begin(std::int64_t micro_batches, Tensor const& loss_sums);
  /// The gradients [range.count()] that a micro-batch has left in a section; ranks without one give zeros.
  void add(DividedSection const& section, Tensor const& gradients) { exchange(of(section.range), gradients); }
  /// The gradients [parts, own] of a section that is used in parts: from the rows of each rank of the run.
  void add_parts(DividedSection const& section, Tensor const& gradients);
  /// The same of all other gradients and of the losses, which are zero afterwards.
  void round_done(Tensor const& loss_sums);
  /// This rank's parts of the gradients = the sums over the micro-batches and the context group; loss_sums = those over
  /// the micro-batches.
  void finish(Tensor const& loss_sums);

 private:
  /// The trees of this rank's part of a bucket, or of the losses: one for each rank of the context group.
  struct Trees {
    IndexRange range;
    IndexRange own;
    std::vector<std::int64_t> parts{};       ///< [replica]: elements of each one's part, without copies
    DividedSection const* copied = nullptr;  ///< the bucket's, where several runs of replicas divide it
    bool section = false;
    std::vector<Tensor> sums{};
    std::vector<GradientTree> trees{};
  };

  Trees& of(IndexRange const& range);
  void make_trees(Trees& trees, DType dtype, std::int64_t elements) const;
  void begin(Trees& trees, std::int64_t micro_batches) const;
  /// `leaves` [replica, …]: what each has left; of the last round some have none.
  void add_leaves(Trees& trees, Tensor const& leaves) const;
  void exchange(Trees& trees, Tensor const& gradients);

  ParallelState parallel_;
  Communicator replicas_;
  GroupMember context_;
  ParameterSet const& parameters_;
  std::shared_ptr<TensorOps> operations_;
  Execution& execution_;
  std::vector<Trees> buckets_;  ///< in the order of the buffer
  Trees losses_;
  std::int64_t micro_batches_left_ = 0;
  Tensor received_;         ///< [replica, the longest part]
  Tensor from_run_;         ///< [rank of a run of replicas, the longest part]
  Tensor received_losses_;  ///< [replica, loss sums]
};

}  // namespace heddle
