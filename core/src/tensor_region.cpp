#include <heddle/core/layers/tensor_region.hpp>
#include <heddle/core/share.hpp>

namespace heddle {

std::int64_t TensorRegion::stream_rows(Context const& context, std::int64_t rows) {
  return share(rows, context.stream.rank, context.stream.ranks).count();
}

std::vector<std::int64_t> TensorRegion::shares(Context const& context) const {
  std::vector<std::int64_t> counts;
  for (int rank = 0; rank < context.stream.ranks; ++rank) {
    counts.push_back(share(rows(context), rank, context.stream.ranks).count());
  }
  return counts;
}

Tensor TensorRegion::enter(Context& context, Tensor const& stream) const {
  Tensor const whole = partial_of(context, stream);
  if (context.stream.ranks > 1) {
    tensor_.all_gather_rows(stream, whole, shares(context));
  }
  return whole;
}

Tensor TensorRegion::partial_of(Context& context, Tensor const& stream) const {
  return context.stream.ranks == 1 ? stream : context.arena.allocate(stream.dtype(), {rows(context), stream.dim(1)});
}

void TensorRegion::leave(Context& context, Tensor const& partial, Tensor const& stream) const {
  if (context.stream.ranks > 1) {
    tensor_.reduce_scatter_rows(partial, stream, shares(context));
  } else if (split()) {
    tensor_.all_reduce(partial);
  }
}

}  // namespace heddle
