#pragma once

#include <functional>
#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/core/parallel/communicator.hpp>
#include <heddle/core/training/optimizer.hpp>
#include <heddle/dist/optimizer/gradient_reducer.hpp>
#include <heddle/dist/optimizer/matrix_updates.hpp>
#include <heddle/dist/optimizer/owned_state.hpp>
#include <map>
#include <optional>
#include <span>
#include <string>

namespace heddle {

/// Computes new values from the ranks' gradients, on any mesh. A step: `zero_gradients`, micro-batches that add (the
/// last of which may use the reducer's `progress`), the reducer's `reduce`, `update`. A deterministic step: the
/// reducer's `begin_tree`, micro-batches that add, each followed by `micro_batch_done`, `finish_tree`, then `update`.
///
/// If it is sharded (ZeRO-1, Rajbhandari et al. 2020) each of the d replicas (data × context) keeps the rules' state of
/// 1/d of the buffers (see BufferShards): `reduce` is a reduce-scatter, and the values of one bucket are gathered while
/// the next is updated. A matrix whose rule is one over matrices has one owner, which broadcasts it. Frozen parameters
/// do not count in the norm, and buckets that hold only frozen parameters are not sent. No other rank can check the
/// state that only one replica keeps: that replica compares its values and state with the digests of its last update
/// (see OwnedState; not in a device's memory). Keeps references to the parameters and the execution.
class DistributedOptimizer {
 public:
  struct Options {
    bool shard = false;
    std::int64_t bucket_elements = GradientReducer::default_bucket;
    BucketReduction::Observe observe = {};  ///< see GradientReducer::Options
  };

  /// The set must be allocated; its parameters get their rules, whose state starts at zero. Collective as
  /// MatrixUpdates' is. Errors: see Optimizer and GradientReducer.
  DistributedOptimizer(OptimizerConfig const& config, KernelSource const& kernels, ParallelState const& parallel,
                       ParameterSet& parameters, Execution& execution, Options const& options);

  /// Does nothing where the last update left zeros.
  void zero_gradients();
  GradientReducer& reducer() { return *reducer_; }
  GradientReducer const& reducer() const { return *reducer_; }
  /// Applies the reduced gradients with this learning rate; `step` is 1 for the first update. Returns the whole
  /// model's gradient norm before clipping, the same bits on every rank; if it is not finite no rank changes anything.
  /// Collective over the world.
  /// With GradientsAfter::zero nobody reads the gradients before the next zero_gradients: an update that has all of
  /// them in the host's memory sets each to zero when it has used it, which saves a pass over memory.
  double update(double learning_rate, std::int64_t step, GradientsAfter after = GradientsAfter::kept);
  /// The two halves of update, between which the caller fetches the sum: sum [1] in float64 += the squares of the
  /// reduced gradients that this rank counts; and the rest. Only the second is collective.
  void add_sum_of_squares(Tensor const& sum) const;
  double update(double own_sum_of_squares, double learning_rate, std::int64_t step,
                GradientsAfter after = GradientsAfter::kept);

  /// After `updates` of the run's updates: exchanges all values with their averages (Optimizer::swap_averages); a
  /// second call brings them back, bitwise. An update, a save or a check of replicas may not come between the two.
  /// Collective over the replicas.
  void swap_averages(std::int64_t updates);

  bool sharded() const { return sharded_; }
  /// The ranges of the buffers whose state this rank keeps, and that state.
  Optimizer const& local() const { return optimizer_; }
  std::int64_t bucket_elements() const { return bucket_elements_; }
  /// The bytes of the rules' state on this rank and of the buffers for updates of matrices.
  std::int64_t state_bytes() const { return optimizer_.state_bytes() + matrices_.bytes(); }
  /// The tensors whose part on this rank changed outside of an update: see OwnedState::damaged. Not collective.
  std::vector<std::string> damaged() const { return owned_ ? owned_->damaged() : std::vector<std::string>(); }
  /// The elements that this rank keeps of the state of that key, one of Parameter::state: those of the parameter's
  /// slice, row major, with a sharded optimizer some ranges of them; of Parameter::whole_state all or none.
  std::vector<IndexRange> kept_state(Parameter const& parameter, std::string const& key) const;
  /// These elements of it, flat, which must lie within one of `kept_state`. Throws Error otherwise.
  Tensor state_in(Parameter const& parameter, std::string const& key, IndexRange const& elements) const;
  /// The ranks that compute the matrices of this stage, see heddle::deal_matrices.
  std::vector<DealtMatrix> dealt_matrices() const;
  /// Sets these elements of the state of that key. Throws as state_in does, and Error if the list has another number of
  /// elements.
  void set_state(Parameter const& parameter, std::string const& key, IndexRange const& elements,
                 std::span<float const> values);
  /// The parameters of the whole model whose state began in the middle of the run, at zero, and after how many of its
  /// updates, by name: UpdateStep::step counts from there. None at first. The same on every rank; not collective.
  using StateBegins = std::map<std::string, std::int64_t>;
  void set_state_begins(StateBegins begins);
  /// Between two steps, after `updates` of the run's updates: trains the parameters of this rank that are frozen up to
  /// then, see heddle::unfreeze. The caller adds them to the state's begins. Every rank calls it in the same places;
  /// not collective.
  void unfreeze(std::int64_t updates);
  StateBegins const& state_begins() const { return state_begins_; }

 private:
  /// A bucket with elements to update, and this rank's part of it: a block for each call of the kernel.
  struct UpdatedBucket {
    BufferShards::Bucket bucket;
    std::vector<IndexRange> blocks;
  };

  GradientReducer::Options reducer_options() const { return {bucket_elements_, sharded_, observe_}; }
  BufferShards const* parts() const { return sharded_ ? &reducer_->parts() : nullptr; }
  /// Finds what depends on which parameters are frozen.
  void find_ranges();
  void find_counted();
  void find_updated_buckets();
  double norm_of(double own_sum_of_squares) const;
  void compare_matrices();
  /// Changes each block of this rank's part of the values, and gathers the replicas' parts of a bucket meanwhile.
  void change_and_gather(std::function<void(BufferShards::Bucket const&, IndexRange const&)> const& change);

  ParallelState parallel_;
  ParameterSet& parameters_;
  KernelRegistries const& registries_;
  Execution& execution_;
  std::int64_t bucket_elements_;
  BucketReduction::Observe observe_;
  bool sharded_;
  std::shared_ptr<TensorOps> operations_;
  std::optional<GradientReducer> reducer_;  ///< made again by unfreeze
  Optimizer optimizer_;
  MatrixUpdates matrices_;
  std::vector<IndexRange> counted_;             ///< of the gradients in the norm on this rank; adjacent ones joined
  Tensor sum_of_squares_;                       ///< float64 [1]
  std::vector<UpdatedBucket> updated_buckets_;  ///< the reducer's that hold more than frozen parameters
  std::optional<OwnedState> owned_;             ///< if it is sharded, and the host can read the tensors
  StateBegins state_begins_;
  bool gradients_are_zero_ = false;  ///< the last update left them so
  bool averages_swapped_ = false;
  bool recorded_before_swap_ = false;  ///< OwnedState::is_recorded
};

}  // namespace heddle
