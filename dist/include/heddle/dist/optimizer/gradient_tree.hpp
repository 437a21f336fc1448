#pragma once

#include <cstdint>
#include <heddle/core/base/index_range.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/core/parallel/communicator.hpp>
#include <memory>
#include <vector>

namespace heddle {

struct Execution;
class TensorOps;

/// Sums micro-batches' gradients, or losses, in one fixed binary tree, bitwise the same on any number of data ranks. A
/// node over [0, n) is left + right, cut at the largest power of two below n.
///
/// A step is `begin`, then for each of this rank's micro-batches a run that adds to the sums followed by
/// `micro_batch_done`, then `finish`. First each rank sums the largest subtrees that contain only its own
/// micro-batches. Partial sums are sent only after that, so that no rank waits while it still has work to do.
class GradientTree {
 public:
  /// The sums of a subtree.
  using Sums = std::vector<Tensor>;

  /// Keeps a reference to the execution.
  GradientTree(Communicator const& data, std::shared_ptr<TensorOps> operations, Execution& execution);

  /// Starts a step of `micro_batches` over all ranks, at least 1 and the same on every rank, with `sums` at zero.
  /// Returns this rank's micro-batches, to be run in order.
  IndexRange begin(std::int64_t micro_batches, Sums const& sums);
  /// Takes the sums of this rank's next micro-batch and sets them to zero for the one after.
  void micro_batch_done();
  /// sums = the whole tree's, on every rank. Collective over the data group.
  void finish();

 private:
  /// A subtree that waits for its sibling.
  struct Held {
    IndexRange node;
    Sums sums;
  };

  void zero() const;
  void add(Sums const& into, Sums const& from) const;
  void copy(Sums const& from, Sums const& to) const;
  void hold(IndexRange const& node);
  IndexRange parent_of(IndexRange const& node) const;
  Sums combine(IndexRange const& node);
  int owner(std::int64_t micro_batch) const;

  Communicator data_;
  std::shared_ptr<TensorOps> operations_;
  Execution& execution_;
  IndexRange whole_;
  IndexRange mine_;
  Sums sums_;
  std::int64_t next_ = 0;         ///< the next of this rank's micro-batches
  std::vector<Held> held_;        ///< leftmost first
  std::size_t next_held_ = 0;     ///< the next that combine() will use
  std::vector<Sums> spare_ = {};  ///< memory for held nodes, kept from step to step
};

}  // namespace heddle
