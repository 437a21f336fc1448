#include <heddle/core/base/index_range.hpp>
#include <heddle/core/layers/tensor_region.hpp>

namespace heddle {

std::int64_t TensorRegion::stream_rows(LayerContext const& context, std::int64_t rows) {
  return share(rows, context.row_split.rank, context.row_split.ranks).count();
}

std::vector<std::int64_t> TensorRegion::shares(LayerContext const& context) const {
  std::vector<std::int64_t> counts;
  for (int rank = 0; rank < context.row_split.ranks; ++rank) {
    counts.push_back(share(rows(context), rank, context.row_split.ranks).count());
  }
  return counts;
}

Tensor TensorRegion::enter(LayerContext& context, Tensor const& stream) const {
  Tensor const whole = partial_of(context, stream);
  if (context.row_split.ranks > 1) {
    tensor_.all_gather_rows(stream, whole, shares(context));
  }
  return whole;
}

Tensor TensorRegion::partial_of(LayerContext& context, Tensor const& stream) const {
  return context.row_split.ranks == 1 ? stream : context.arena.allocate(stream.dtype(), {rows(context), stream.dim(1)});
}

void TensorRegion::leave(LayerContext& context, Tensor const& partial, Tensor const& stream) const {
  if (context.row_split.ranks > 1) {
    tensor_.reduce_scatter_rows(partial, stream, shares(context));
  } else if (split()) {
    tensor_.all_reduce(partial);
  }
}

}  // namespace heddle
