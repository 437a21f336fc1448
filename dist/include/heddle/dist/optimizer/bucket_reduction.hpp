#pragma once

#include <deque>
#include <functional>
#include <heddle/core/base/index_range.hpp>
#include <heddle/core/parallel/communicator.hpp>
#include <heddle/core/parameters/parameter.hpp>
#include <heddle/dist/optimizer/buffer_shards.hpp>
#include <unordered_map>
#include <vector>

namespace heddle {

struct Execution;

/// Sums a step's gradients over the replicas bucket by bucket, while the backward pass that computes them still runs.
/// A bucket's reduction starts once all gradients in it are final, in the order in which a backward pass finishes
/// them, which is the same on every replica. Buckets of frozen parameters only are left out. Ranks are added in their
/// order, so the sums depend neither on the buckets nor on timing. Keeps references to the parameters and the
/// execution.
class BucketReduction final : public GradientProgress {
 public:
  /// Buckets of the gradient buffer. With `scatter` a replica gets only its part of each that is divided; otherwise
  /// every replica gets all. `observe`, if there is one, is called with each bucket's gradients before they are summed.
  /// The set must be allocated. Not collective.
  using Observe = std::function<void(Tensor const& gradients)>;
  BucketReduction(Communicator const& replicas, ParameterSet const& parameters, Execution& execution,
                  BufferShards const& parts, bool scatter, Observe observe = {});

  /// Throws Error if all uses of a parameter are already finished: later additions would be lost.
  void use_done(Parameter const& parameter) override;
  void progress() override;
  /// Called when every gradient is final: returns when all sums are here, and is ready for the next step. Collective
  /// over the replicas.
  void finish();

 private:
  struct Bucket {
    IndexRange range;
    IndexRange own;  ///< empty: the whole bucket
    std::int64_t uses = 0;
    std::int64_t uses_left = 0;
    std::int64_t first_use = -1;  ///< the first one in a forward pass, so the last one in a backward pass
  };
  struct Member {
    std::int64_t uses = 0;
    std::int64_t uses_left = 0;
    std::vector<Bucket*> buckets;
  };

  void start(Bucket const& bucket);
  bool may_start() const;

  Communicator replicas_;
  ParameterSet const& parameters_;
  Observe observe_;
  std::vector<Bucket> buckets_;  ///< in the order in which their reductions start
  std::unordered_map<Parameter const*, Member> members_;
  std::size_t max_under_way_;  ///< buckets that travel at once
  std::deque<Transfer> under_way_;
  std::size_t next_ = 0;
  bool finishing_ = false;
};

}  // namespace heddle
