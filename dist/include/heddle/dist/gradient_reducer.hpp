#pragma once

#include <cstdint>
#include <functional>
#include <heddle/core/communicator.hpp>
#include <heddle/core/parameter.hpp>
#include <heddle/core/share.hpp>
#include <memory>
#include <vector>

namespace heddle {

struct Execution;
class TensorOps;

/// Sums gradients over the data group, in one of two ways: `all_reduce` is fast; `reduce_tree` gives bitwise the same
/// sum on any number of data ranks. Keeps references to the parameters and the execution.
class GradientReducer {
 public:
  static constexpr std::int64_t default_bucket = std::int64_t{1} << 22;  // elements: 16 MiB of float32

  /// Throws ConfigError where a parameter's gradient is partial over an axis other than data.
  GradientReducer(ParallelState const& parallel, ParameterSet& parameters, std::shared_ptr<TensorOps> operations,
                  Execution& execution, std::int64_t bucket_elements = default_bucket);

  /// gradients = Σ over the data group, bucket by bucket, and so loss_sums, float64 [n]; collective over it.
  void all_reduce(Tensor const& loss_sums) const;

  /// gradients = the sum over micro-batches 0 … micro_batches - 1 in one fixed binary tree, and so loss_sums, float64
  /// [n], on every rank of the data group; both are overwritten. `run_micro_batch(i)` adds micro-batch i's part into
  /// both, and is called, in order, for this rank's share alone. A node over [0, n) is left + right, cut at the largest
  /// power of two below n. Collective over the data group; every rank gives the same `micro_batches`, at least 1.
  void reduce_tree(std::int64_t micro_batches, Tensor const& loss_sums,
                   std::function<void(std::int64_t)> const& run_micro_batch);

 private:
  /// A subtree's sums.
  struct Partial {
    Tensor gradients;
    Tensor loss_sums;
  };
  struct Tree;

  void add(Partial const& into, Partial const& from) const;
  void copy(Partial const& from, Partial const& to) const;

  Communicator data_;
  ParameterSet& parameters_;
  std::shared_ptr<TensorOps> operations_;
  Execution& execution_;
  std::int64_t bucket_elements_;
  std::vector<Partial> spare_;  ///< kept from step to step
};

}  // namespace heddle
