#include <boost/container/small_vector.hpp>
#include <heddle/core/base/index_range.hpp>
#include <heddle/core/layers/tensor_region.hpp>

namespace heddle {

namespace {

/// Each rank's rows of the stream; no allocation in groups of ordinary size.
boost::container::small_vector<std::int64_t, 32> shares(std::int64_t rows, int ranks) {
  boost::container::small_vector<std::int64_t, 32> counts;
  for (int rank = 0; rank < ranks; ++rank) {
    counts.push_back(share(rows, rank, ranks).count());
  }
  return counts;
}

}  // namespace

Tensor TensorRegion::enter(LayerContext& context, Tensor const& stream) const {
  Tensor const whole = partial_of(context, stream);
  if (context.row_split.ranks > 1) {
    tensor_.all_gather_rows(stream, whole, shares(rows(context), context.row_split.ranks));
  }
  return whole;
}

Tensor TensorRegion::partial_of(LayerContext& context, Tensor const& stream) const {
  return context.row_split.ranks == 1 ? stream : context.arena.allocate(stream.dtype(), {rows(context), stream.dim(1)});
}

void TensorRegion::leave(LayerContext& context, Tensor const& partial, Tensor const& stream) const {
  if (context.row_split.ranks > 1) {
    tensor_.reduce_scatter_rows(partial, stream, shares(rows(context), context.row_split.ranks));
  } else if (split()) {
    tensor_.all_reduce(partial);
  }
}

}  // namespace heddle
