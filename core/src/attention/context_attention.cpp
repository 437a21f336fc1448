#include <heddle/core/attention/context_attention.hpp>
#include <heddle/core/base/error.hpp>
#include <utility>

namespace heddle {

namespace {

void require_split(ContextRows const& rows, Communicator const& group, std::int64_t local_rows, char const* what) {
  auto const shards = static_cast<int>(rows.shards.size());
  if (shards != group.size()) {
    throw Error("context attention: the {} are split over {} ranks, but the group has {}", what, shards, group.size());
  }
  std::int64_t const expected = rows.shards[static_cast<std::size_t>(group.rank())].tokens;
  if (local_rows != expected) {
    throw Error("context attention: {} rows of {}, where rank {} of the group holds {}", local_rows, what, group.rank(),
                expected);
  }
}

}  // namespace

ContextAttention::ContextAttention(Communicator group, ContextMode mode, std::shared_ptr<Attention> attention,
                                   std::shared_ptr<TensorOps> tensor_ops)
    : group_(std::move(group)), mode_(mode), attention_(std::move(attention)), tensor_ops_(std::move(tensor_ops)) {}

DType ContextAttention::operand_dtype(DType dtype) const {
  return attention_->wide_results() ? dtype : sum_dtype(mode_, dtype);
}

ContextAttention::Activations ContextAttention::forward(Task const& task, AttentionCall const& call,
                                                        Tensor const& output) const {
  require_split(task.queries, group_, call.q.dim(0), "queries");
  require_split(task.keys, group_, call.k.dim(0), "keys");
  if (!call.mask.is(MaskKind::bidirectional) && !task.self) {
    throw Error("context attention: only self-attention can have a mask");
  }
  if (mode_ == ContextMode::ulysses) {
    return ulysses_forward(task, call, output);
  }
  return call.mask.is_local() ? window_forward(task, call, output) : ring_forward(task, call, output);
}

void ContextAttention::backward(Task const& task, Activations const& kept, Tensor const& grad_output,
                                AttentionGradients const& gradients) const {
  if (mode_ == ContextMode::ulysses) {
    return ulysses_backward(task, kept, grad_output, gradients);
  }
  return kept.call.mask.is_local() ? window_backward(task, kept, grad_output, gradients)
                                   : ring_backward(task, kept, grad_output, gradients);
}

}  // namespace heddle
