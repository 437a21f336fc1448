#pragma once

#include <cstdint>
#include <heddle/core/base/index_range.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/core/parallel/communicator.hpp>
#include <heddle/core/parameters/parameter.hpp>
#include <heddle/dist/optimizer/bucket_reduction.hpp>
#include <heddle/dist/optimizer/buffer_shards.hpp>
#include <heddle/dist/optimizer/gradient_tree.hpp>
#include <memory>
#include <string>
#include <vector>

namespace heddle {

/// Sums gradients over groups other than the replicas, for the parameters that need it: over the axes that they name in
/// gradient_partial_over (norms and biases over tensor, where sequence parallelism leaves each rank a part of the
/// tokens), then over the pipeline stages that hold the parameter (tied embeddings). Keeps references to the parameters
/// and the execution.
class PartialSums {
 public:
  /// Allocates all buffers. Throws Error if a parameter's stages do not ascend or do not include this one, and
  /// ConfigError if its gradient is declared partial over pipeline, for which `stages` exists, or if pipeline, data or
  /// context splits it.
  PartialSums(ParallelState const& parallel, ParameterSet const& parameters, std::shared_ptr<TensorOps> operations,
              Execution& execution, std::int64_t bucket_elements);

  /// Sums the elements in `ranges` of the gradient buffer, the same ranges on every rank along MeshShape::model_axes
  /// and the same parts of a parameter on all its stages; every holder gets the same bits. Collective over these axes
  /// and pipeline.
  void sum(std::vector<IndexRange> const& ranges) const;

 private:
  struct OverAxis {
    MeshAxis axis;
    Communicator group;
    std::vector<IndexRange> elements;
  };
  struct Held {
    std::string name;
    IndexRange elements;
    std::vector<int> stages;
  };

  void sum_over(Communicator const& group, std::vector<IndexRange> ranges) const;
  void sum_over_stages(IndexRange const& range, std::vector<int> const& stages) const;

  Communicator pipeline_;
  ParameterSet const& parameters_;
  std::shared_ptr<TensorOps> operations_;
  Execution& execution_;
  std::vector<OverAxis> over_axes_;
  std::vector<Held> over_stages_;  ///< by name: the same order on every stage
  Tensor packed_;                  ///< the elements of one of `over_axes_`, adjacent
  Tensor received_;                ///< [other holders, elements of one exchange]
};

/// Sums a step's gradients, each over all the ranks that have a part of it: always over the replicas (data × context),
/// then, for parameters that need it, over the tensor group and over the stages that hold them. `reduce` is fast: the
/// reduction over the replicas runs during the last backward pass if that pass reports through `progress` which
/// gradients are final. The tree (`begin_tree`, `micro_batch_done`, `finish_tree`) gives bitwise the same sum on any
/// number of data ranks. Loss sums, float64 [n], are summed over the replicas and the pipeline group, of which only
/// the last stage contributes. Keeps references to the parameters and the execution. `reduce` and `finish_tree` are
/// collective over the world.
class GradientReducer {
 public:
  /// Elements of a bucket: 1 MiB of float32, so that the first starts soon and the last does not take long.
  static constexpr std::int64_t default_bucket = std::int64_t{1} << 18;
  /// Elements of a run's buckets among `replicas` replicas: default_bucket, or more, so that each replica's part is a
  /// whole message of a reduction that progresses while ranks compute (eager_elements).
  static std::int64_t bucket_for(int replicas);

  struct Options {
    std::int64_t bucket_elements = default_bucket;
    bool scatter = false;                   ///< `reduce` leaves each replica only its own parts of the sum
    BucketReduction::Observe observe = {};  ///< of `reduce`
  };

  /// The set must be allocated. Throws Error if a parameter names impossible stages or axes.
  GradientReducer(ParallelState const& parallel, ParameterSet& parameters, std::shared_ptr<TensorOps> operations,
                  Execution& execution, Options const& options);

  /// Follows the step's last backward pass, if `reduce` comes after it.
  GradientProgress& progress() { return buckets_; }
  /// gradients = their sum, and loss_sums = theirs. With `scatter` the gradients outside `reduced()` are undefined.
  void reduce(Tensor const& loss_sums);

  /// Starts a step of `micro_batches` over all ranks, at least 1 and the same on every rank: gradients and
  /// loss_sums = 0. Returns this data rank's micro-batches. Each is run in order, adds to both, and is followed by
  /// micro_batch_done.
  IndexRange begin_tree(std::int64_t micro_batches, Tensor const& loss_sums);
  void micro_batch_done() { tree_.micro_batch_done(); }
  /// gradients = the sum over all micro-batches in one fixed binary tree, and loss_sums = theirs, on every rank.
  void finish_tree();

  /// Takes what GatheredParameters has summed for each replica's own parts, in a tree, and does the rest: as
  /// finish_tree, with loss_sums of this rank's data group.
  void finish_scattered(Tensor const& loss_sums);

  /// The division of the buffers among the replicas, if they are divided.
  BufferShards const& parts() const { return parts_; }
  /// The ranges of the gradient buffer whose sums the last reduction left on this rank.
  std::vector<IndexRange> const& reduced() const { return scattered_ ? own_ : everything_; }
  /// True if other replicas have other ranges.
  bool scattered() const { return scattered_; }

 private:
  void sum_over_context() const;
  void sum_copies() const;

  ParallelState parallel_;
  ParameterSet& parameters_;
  Options options_;
  BufferShards parts_;  ///< among the replicas
  std::vector<IndexRange> everything_;
  std::vector<IndexRange> own_;
  BucketReduction buckets_;
  PartialSums partial_sums_;
  GradientTree tree_;
  Tensor tree_losses_;  ///< of the step between begin_tree and finish_tree
  bool scattered_ = false;
};

}  // namespace heddle
