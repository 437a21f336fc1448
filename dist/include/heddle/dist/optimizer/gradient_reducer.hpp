#pragma once

#include <cstdint>
#include <heddle/core/base/index_range.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/core/parallel/communicator.hpp>
#include <heddle/core/parameters/parameter.hpp>
#include <heddle/dist/optimizer/bucket_reduction.hpp>
#include <heddle/dist/optimizer/buffer_parts.hpp>
#include <heddle/dist/optimizer/gradient_tree.hpp>
#include <heddle/dist/optimizer/partial_sums.hpp>
#include <memory>
#include <vector>

namespace heddle {

/// Sums a step's gradients, each over all the ranks that have a part of it: always over the replicas (data × context),
/// then, where the parameter says so, over the tensor group and over the stages that hold it. `reduce` is fast, and its
/// sums over the replicas travel while the last backward pass still runs, where that pass says through `progress` which
/// gradients are final. The tree (`begin_tree`, `micro_batch_done`, `finish_tree`) gives bitwise the same sum on any
/// number of data ranks. Loss sums, float64 [n], are summed over the replicas and the pipeline group: only its last
/// stage brings any. Keeps references to the parameters and the execution. `reduce` and `finish_tree` are collective
/// over the world.
class GradientReducer {
 public:
  /// Elements: 1 MiB of float32, so that the first leave soon and the last does not take long.
  static constexpr std::int64_t default_bucket = std::int64_t{1} << 18;

  struct Options {
    std::int64_t bucket_elements = default_bucket;
    bool scatter = false;  ///< `reduce` leaves on each replica its own parts of the sum alone
  };

  /// The set is allocated. Throws Error where a parameter names stages or axes that cannot be.
  GradientReducer(ParallelState const& parallel, ParameterSet& parameters, std::shared_ptr<TensorOps> operations,
                  Execution& execution, Options const& options);

  /// For the step's last backward pass, if `reduce` follows.
  GradientProgress& progress() { return buckets_; }
  /// gradients = their sum, and so loss_sums. With `scatter` the gradients outside `reduced()` are not to be read.
  void reduce(Tensor const& loss_sums);

  /// Starts a step of `micro_batches` in all, at least 1 and the same on every rank: gradients and loss_sums = 0.
  /// Returns this data rank's micro-batches. Each is run in order, adds into both, and is followed by micro_batch_done.
  IndexRange begin_tree(std::int64_t micro_batches, Tensor const& loss_sums);
  void micro_batch_done() { tree_.micro_batch_done(); }
  /// gradients = the sum over all micro-batches in one fixed binary tree, and so loss_sums, on every rank.
  void finish_tree();

  /// How the replicas share the buffers, where they do.
  BufferParts const& parts() const { return parts_; }
  /// The ranges of the gradient buffer whose sums the last reduction left here.
  std::vector<IndexRange> const& reduced() const { return scattered_ ? own_ : everything_; }
  /// True where other replicas have other ranges.
  bool scattered() const { return scattered_; }

 private:
  void sum_over_context() const;

  ParallelState parallel_;
  ParameterSet& parameters_;
  Options options_;
  BufferParts parts_;                      ///< among the replicas
  std::vector<IndexRange> whole_buckets_;  ///< the same whatever the number of replicas
  std::vector<IndexRange> everything_;
  std::vector<IndexRange> own_;
  BucketReduction buckets_;
  PartialSums partial_sums_;
  GradientTree tree_;
  Tensor tree_losses_;  ///< of the step between begin_tree and finish_tree
  bool scattered_ = false;
};

}  // namespace heddle
