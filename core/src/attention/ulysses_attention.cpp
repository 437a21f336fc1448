#include <fmt/format.h>

#include <array>
#include <heddle/core/attention/context_attention.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/core/operations/attention.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <span>
#include <vector>

namespace heddle {

namespace {

/// Moves matrices between the two layouts of a group: every column of this rank's rows, and all rows of a c-th of the
/// columns.
class Exchange {
 public:
  Exchange(Communicator const& group, ContextAttention::Task const& task, TensorOps& tensor_ops,
           ContextRows const& rows)
      : group_(group), task_(task), tensor_ops_(tensor_ops), rows_(rows) {
    for (TokenRows const& shard : rows.shards) {
      shard_rows_.push_back(shard.tokens);
    }
    local_ = shard_rows_[static_cast<std::size_t>(group.rank())];
    to_each_.assign(shard_rows_.size(), local_);
  }

  /// Converts matrices [local rows, c * width] to [all rows, matrices * width]: side by side, with the rows in one
  /// rank's order.
  Tensor to_heads(std::span<Tensor const> matrices) const {
    std::int64_t const width = matrices[0].dim(1) / group_.size();
    Shape const shape{rows_.whole.tokens, width * static_cast<std::int64_t>(matrices.size())};
    Tensor const whole = task_.arena.allocate(matrices[0].dtype(), shape);
    ArenaScope const scope(task_.arena);
    Tensor const sent = task_.arena.allocate(whole.dtype(), {group_.size() * local_, whole.dim(1)});
    for (int rank = 0; rank < group_.size(); ++rank) {
      for (std::size_t i = 0; i < matrices.size(); ++i) {
        tensor_ops_.copy(task_.execution, matrices[i].columns(rank * width, width), part(sent, rank, i, width));
      }
    }
    Tensor const received = task_.arena.allocate(whole.dtype(), whole.shape());
    group_.all_to_all_rows(sent, to_each_, received, shard_rows_);
    tensor_ops_.gather_rows(task_.execution, received, rows_.to_whole, whole);
    return whole;
  }

  /// Converts back into `matrices`, which may be strided.
  void to_rows(Tensor const& whole, std::span<Tensor const> matrices) const {
    std::int64_t const width = matrices[0].dim(1) / group_.size();
    ArenaScope const scope(task_.arena);
    Tensor const sent = task_.arena.allocate(whole.dtype(), whole.shape());
    tensor_ops_.gather_rows(task_.execution, whole, rows_.from_whole, sent);
    Tensor const received = task_.arena.allocate(whole.dtype(), {group_.size() * local_, whole.dim(1)});
    group_.all_to_all_rows(sent, shard_rows_, received, to_each_);
    for (int rank = 0; rank < group_.size(); ++rank) {
      for (std::size_t i = 0; i < matrices.size(); ++i) {
        tensor_ops_.copy(task_.execution, part(received, rank, i, width), matrices[i].columns(rank * width, width));
      }
    }
  }

 private:
  /// A rank's part of matrix i, received or to be sent.
  Tensor part(Tensor const& parts, int rank, std::size_t i, std::int64_t width) const {
    return parts.rows(rank * local_, local_).columns(static_cast<std::int64_t>(i) * width, width);
  }

  Communicator const& group_;
  ContextAttention::Task const& task_;
  TensorOps& tensor_ops_;
  ContextRows const& rows_;
  std::vector<std::int64_t> shard_rows_;
  std::vector<std::int64_t> to_each_;
  std::int64_t local_ = 0;
};

/// A rank's rows of a bias or of its gradient.
Tensor own_heads(Tensor const& bias, int rank, std::int64_t heads) {
  return bias.empty() ? Tensor() : bias.rows(rank * heads, heads);
}

Tensor nth(Tensor const& matrix, std::int64_t index, std::int64_t width) {
  return matrix.columns(index * width, width);
}

}  // namespace

ContextAttention::Activations ContextAttention::ulysses_forward(Task const& task, AttentionCall const& call,
                                                                Tensor const& output) const {
  std::int64_t const ranks = group_.size();
  if (call.heads % ranks != 0) {
    throw ConfigError(
        fmt::format("parallel.context_mode = \"ulysses\" splits a rank's {} heads over parallel.context = {} ranks, "
                    "which must divide them; parallel.context_mode = \"ring\" needs no such thing",
                    call.heads, ranks));
  }
  std::int64_t const width = call.q.dim(1) / ranks;
  Exchange const queries(group_, task, *tensor_ops_, task.queries);
  AttentionCall whole = call;
  if (task.self) {
    Tensor const qkv = queries.to_heads(std::array{call.q, call.k, call.v});
    whole.q = nth(qkv, 0, width), whole.k = nth(qkv, 1, width), whole.v = nth(qkv, 2, width);
  } else {
    whole.q = queries.to_heads(std::array{call.q});
    Tensor const kv = Exchange(group_, task, *tensor_ops_, task.keys).to_heads(std::array{call.k, call.v});
    whole.k = nth(kv, 0, width), whole.v = nth(kv, 1, width);
  }
  whole.queries = task.queries.whole.sequences;
  whole.keys = task.keys.whole.sequences;
  whole.heads = call.heads / ranks;
  whole.bias = own_heads(call.bias, group_.rank(), whole.heads);
  whole.dropout.first_column += static_cast<std::int32_t>(group_.rank() * whole.heads);
  whole.dropout.sample = task.queries.whole.sample;
  whole.dropout.position = task.queries.whole.position;
  Activations kept{whole, task.arena.allocate(whole.q.dtype(), {whole.q.dim(0), width}),
                   task.arena.allocate(statistics_dtype(whole.q.dtype()), {whole.q.dim(0), whole.heads})};
  attention_->forward(task.execution, whole, kept.output, kept.log_sum_exp);
  queries.to_rows(kept.output, std::array{output});
  return kept;
}

void ContextAttention::ulysses_backward(Task const& task, Activations const& kept, Tensor const& grad_output,
                                        AttentionGradients const& gradients) const {
  AttentionCall const& call = kept.call;
  std::int64_t const width = call.q.dim(1);
  bool const self = task.self;
  ArenaScope const scope(task.arena);
  Exchange const queries(group_, task, *tensor_ops_, task.queries);
  Tensor const grad = queries.to_heads(std::array{grad_output});
  Tensor const of_queries = task.arena.allocate(call.q.dtype(), {call.q.dim(0), self ? 3 * width : width});
  Tensor const of_keys =
      self ? of_queries.columns(width, 2 * width) : task.arena.allocate(call.k.dtype(), {call.k.dim(0), 2 * width});
  attention_->backward(task.execution, call, kept.output, kept.log_sum_exp, grad,
                       {nth(of_queries, 0, width), nth(of_keys, 0, width), nth(of_keys, 1, width),
                        own_heads(gradients.bias, group_.rank(), call.heads)});
  if (self) {
    queries.to_rows(of_queries, std::array{gradients.q, gradients.k, gradients.v});
  } else {
    queries.to_rows(of_queries, std::array{gradients.q});
    Exchange(group_, task, *tensor_ops_, task.keys).to_rows(of_keys, std::array{gradients.k, gradients.v});
  }
}

}  // namespace heddle
