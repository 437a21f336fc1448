#pragma once

#include <deque>
#include <heddle/core/base/index_range.hpp>
#include <heddle/core/parallel/communicator.hpp>
#include <heddle/core/parameters/gradient_progress.hpp>
#include <unordered_map>
#include <vector>

namespace heddle {

struct Execution;

/// Sums a step's gradients over the replicas bucket by bucket, while the backward pass that makes them still runs. A
/// bucket leaves once all gradients in it are final, in the order in which a backward pass ends with them, which is the
/// same on every replica. Ranks are added in their order, so that the sums depend neither on the buckets nor on the
/// moment. Keeps references to the parameters and the execution.
class BucketReduction final : public GradientProgress {
 public:
  /// Buckets of the gradient buffer and, where a replica gets its part of each alone, those parts; otherwise `own` is
  /// empty and every replica gets all. The set is allocated. Not collective.
  BucketReduction(Communicator const& replicas, ParameterSet const& parameters, Execution& execution,
                  std::vector<IndexRange> const& buckets, std::vector<IndexRange> const& own);

  /// Throws Error where a parameter's uses are all done already: what was added since would be lost.
  void use_done(Parameter const& parameter) override;
  void progress() override;
  /// Every gradient is final: returns when all sums are here, and is ready for the next step. Collective over the
  /// replicas.
  void finish();

  /// So many buckets travel at once. A slow link's queues hold megabytes, and the messages that agree on the next
  /// transfer wait behind them: only many buckets on their way keep such a link busy.
  static constexpr std::size_t most_under_way = 64;

 private:
  struct Bucket {
    IndexRange range;
    IndexRange own;  ///< empty: all of it
    std::int64_t uses = 0;
    std::int64_t uses_left = 0;
    std::int64_t first_use = -1;  ///< the earliest in a forward pass, so the last in a backward pass
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
  std::vector<Bucket> buckets_;  ///< in the order in which they leave
  std::unordered_map<Parameter const*, Member> members_;
  std::deque<Transfer> under_way_;
  std::size_t next_ = 0;
  bool finishing_ = false;
};

}  // namespace heddle
