#pragma once

#include <cstdint>
#include <heddle/core/base/index_range.hpp>
#include <heddle/core/parameters/parameter.hpp>
#include <string>
#include <vector>

namespace heddle {

/// A parameter's place in its stage's buffers: the values needed to cut them.
struct PlacedParameter {
  IndexRange place;
  bool of_several_stages = false;
  bool whole = false;  ///< one rank owns all of it
};
/// The parameters that have a gradient, in the order of their places. One that is updated whole, and the other members
/// of its block, have one owner each.
std::vector<PlacedParameter> placed_parameters(ParameterSet const& parameters);

/// Which of `ranks` ranks owns what: keeps the state of those elements and updates them. A stage's flat buffers are cut
/// into buckets. Each rank owns an equal part of a bucket, or one rank owns a bucket that is a whole parameter. No
/// bucket crosses the border of a parameter that several stages hold, so that it is cut in the same way on all of them.
/// Reductions, updates, plans and checkpoints ask this one layout.
class BufferParts {
 public:
  struct Bucket {
    IndexRange range;
    int owner = -1;  ///< of all of it; -1: each rank owns its part
  };

  /// `parameters` in the order of their places. A bucket that is divided has at most `bucket_elements`, rounded up to a
  /// cache line for each rank. Throws Error if that is below 1.
  BufferParts(std::vector<PlacedParameter> const& parameters, std::int64_t bucket_elements, int ranks);
  BufferParts(ParameterSet const& parameters, std::int64_t bucket_elements, int ranks)
      : BufferParts(placed_parameters(parameters), bucket_elements, ranks) {}

  std::vector<Bucket> const& buckets() const { return buckets_; }
  /// The rank's part of the bucket; empty where another rank owns it.
  IndexRange part(Bucket const& bucket, int rank) const;
  /// The rank that owns this element.
  int owner(std::int64_t element) const;
  /// The rank's part of each bucket, in order.
  std::vector<IndexRange> parts_of(int rank) const;

 private:
  std::vector<Bucket> buckets_;
  int ranks_;
};

/// The indices that both lists cover; each ascends and does not overlap itself.
std::vector<IndexRange> intersection(std::vector<IndexRange> const& left, std::vector<IndexRange> const& right);

/// Whether a range of the set's buffers holds elements of parameters, and all of these are frozen.
bool is_frozen(ParameterSet const& parameters, IndexRange const& range);

/// Whether the tensor group divides a parameter: if not, each of its ranks holds the whole.
bool is_split(ShardSpec const& shard);
/// Whether a sum over the whole model counts this rank's part of a parameter: if not, another tensor rank or stage has
/// the same.
bool counts_here(ParameterSpec const& spec, Mesh const& mesh);

/// The elements that a parameter has in its set's buffers, without padding.
IndexRange elements_of(Parameter const& parameter);
/// "NAME", or "NAME's elements 16 to 31" for some of its elements.
std::string describe(Parameter const& parameter, IndexRange const& elements);

}  // namespace heddle
