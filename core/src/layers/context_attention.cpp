#include <fmt/format.h>

#include <heddle/core/base/error.hpp>
#include <heddle/core/layers/context_attention.hpp>
#include <heddle/core/operations/attention.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <utility>

namespace heddle {

namespace {

void require_split(ContextRows const& rows, Communicator const& context, std::int64_t local_rows, char const* what) {
  auto const shards = static_cast<int>(rows.shards.size());
  if (shards != context.size()) {
    throw Error(fmt::format("context attention: the {} are split over {} ranks, but the group has {}", what, shards,
                            context.size()));
  }
  std::int64_t const expected = rows.shards[static_cast<std::size_t>(context.rank())].tokens;
  if (local_rows != expected) {
    throw Error(fmt::format("context attention: {} rows of {}, where rank {} of the group holds {}", local_rows, what,
                            context.rank(), expected));
  }
}

}  // namespace

ContextAttention::ContextAttention(Communicator context, ContextMode mode, std::shared_ptr<Attention> attention,
                                   std::shared_ptr<TensorOps> tensor_ops)
    : context_(std::move(context)), mode_(mode), attention_(std::move(attention)), tensor_ops_(std::move(tensor_ops)) {}

ContextAttention::Kept ContextAttention::forward(Place const& place, AttentionCall const& call,
                                                 Tensor const& output) const {
  require_split(place.queries, context_, call.q.dim(0), "queries");
  require_split(place.keys, context_, call.k.dim(0), "keys");
  if (!call.mask.is(MaskKind::bidirectional) && &place.queries != &place.keys) {
    throw Error("context attention: only self-attention can have a mask");
  }
  return mode_ == ContextMode::ring ? ring_forward(place, call, output) : ulysses_forward(place, call, output);
}

void ContextAttention::backward(Place const& place, Kept const& kept, Tensor const& grad_output,
                                AttentionGradients const& gradients) const {
  return mode_ == ContextMode::ring ? ring_backward(place, kept, grad_output, gradients)
                                    : ulysses_backward(place, kept, grad_output, gradients);
}

}  // namespace heddle
