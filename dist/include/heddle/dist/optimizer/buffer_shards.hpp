#pragma once

#include <cstdint>
#include <heddle/core/base/index_range.hpp>
#include <heddle/core/parallel/communicator.hpp>
#include <heddle/core/parameters/parameter.hpp>
#include <string>
#include <vector>

namespace heddle {

/// Which of `ranks` ranks owns what: keeps the state of those elements and updates them. A stage's flat buffers are cut
/// into buckets. Each rank owns an equal part of a bucket, or one rank owns a bucket that is a whole parameter. A
/// bucket may have fewer parts than there are ranks: then several runs of ranks own copies of the parts. No bucket
/// crosses the boundary of a parameter that several stages hold, so that it is cut in the same way on all of them.
/// Reductions, updates, plans and checkpoints ask this one layout.
class BufferShards {
 public:
  struct Bucket {
    IndexRange range;
    int owner = -1;  ///< of all of it; -1: each rank owns its part
    int parts = 0;   ///< 0: one for each rank
  };

  /// Divides the gradients' buffer. A parameter with a single owner (Placement::owner), and the other members of its
  /// block, have one owner each. A bucket that is divided has at most `bucket_elements`, rounded up to a cache line for
  /// each rank, but for a DividedSection, which is one bucket. Throws Error if that is below 1.
  BufferShards(ParameterSet const& parameters, std::int64_t bucket_elements, int ranks);
  /// Takes the buckets of another stage.
  BufferShards(std::vector<Bucket> buckets, int ranks) : buckets_(std::move(buckets)), ranks_(ranks) {}

  std::vector<Bucket> const& buckets() const { return buckets_; }
  /// The rank's part of the bucket; empty where another rank owns it.
  IndexRange part(Bucket const& bucket, int rank) const;
  /// The ranks before this one own all of the bucket; the others have copies.
  int first_copy(Bucket const& bucket) const { return bucket.parts > 0 ? bucket.parts : ranks_; }
  /// The rank's part of each bucket, in order.
  std::vector<IndexRange> parts_of(int rank) const;

 private:
  std::vector<Bucket> buckets_;
  int ranks_;
};

/// The replicas that have copies of this rank's part of the section.
inline Communicator const& copies_of(ParallelState const& parallel, DividedSection const& section) {
  return section.in_parts ? parallel.expert_copies : parallel.shard_copies;
}

/// The indices that both lists cover; each ascends and does not overlap itself.
std::vector<IndexRange> intersection(std::vector<IndexRange> const& left, std::vector<IndexRange> const& right);

/// Whether a range of the set's buffers holds elements of parameters, and all of these are frozen.
bool is_frozen(ParameterSet const& parameters, IndexRange const& range);

/// The elements that a parameter has in its set's buffers, without padding.
IndexRange elements_of(Parameter const& parameter);
/// "NAME", or "NAME's elements 16 to 31" for some of its elements.
std::string describe(Parameter const& parameter, IndexRange const& elements);

}  // namespace heddle
