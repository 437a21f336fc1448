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
      : group_(group), task_(task), tensor_ops_(tensor_ops), rows_(rows), shard_rows_(rows.shard_tokens()) {
    local_ = shard_rows_[static_cast<std::size_t>(group.rank())];
    to_each_.assign(shard_rows_.size(), local_);
  }

  /// Converts matrices [local rows, c * width], each with its own width, to [all rows, sum of the widths]: side by
  /// side, with the rows in one rank's order.
  Tensor to_heads(std::span<Tensor const> matrices) const {
    std::int64_t columns = 0;
    for (Tensor const& matrix : matrices) {
      columns += own_width(matrix);
    }
    Tensor const whole = task_.arena.allocate(matrices[0].dtype(), {rows_.whole.tokens, columns});
    ArenaScope const scope(task_.arena);
    Tensor const sent = task_.arena.allocate(whole.dtype(), {group_.size() * local_, whole.dim(1)});
    for_each_part(matrices, sent, [&](Tensor const& of_matrix, Tensor const& of_sent) {
      tensor_ops_.copy(task_.execution, of_matrix, of_sent);
    });
    Tensor const received = task_.arena.allocate(whole.dtype(), whole.shape());
    group_.all_to_all_rows(sent, to_each_, received, shard_rows_);
    tensor_ops_.gather_rows(task_.execution, received, rows_.to_whole, whole);
    return whole;
  }

  /// Converts back into `matrices`, which may be strided.
  void to_rows(Tensor const& whole, std::span<Tensor const> matrices) const {
    ArenaScope const scope(task_.arena);
    Tensor const sent = task_.arena.allocate(whole.dtype(), whole.shape());
    tensor_ops_.gather_rows(task_.execution, whole, rows_.from_whole, sent);
    Tensor const received = task_.arena.allocate(whole.dtype(), {group_.size() * local_, whole.dim(1)});
    group_.all_to_all_rows(sent, shard_rows_, received, to_each_);
    for_each_part(matrices, received, [&](Tensor const& of_matrix, Tensor const& of_received) {
      tensor_ops_.copy(task_.execution, of_received, of_matrix);
    });
  }

 private:
  std::int64_t own_width(Tensor const& matrix) const { return matrix.dim(1) / group_.size(); }

  /// Calls `work` for each rank's columns of each matrix and their place in `parts`, which are sent or received.
  template <class Work>
  void for_each_part(std::span<Tensor const> matrices, Tensor const& parts, Work const& work) const {
    for (int rank = 0; rank < group_.size(); ++rank) {
      std::int64_t begin = 0;
      for (Tensor const& matrix : matrices) {
        std::int64_t const width = own_width(matrix);
        work(matrix.columns(rank * width, width), parts.rows(rank * local_, local_).columns(begin, width));
        begin += width;
      }
    }
  }

  Communicator const& group_;
  ContextAttention::Task const& task_;
  TensorOps& tensor_ops_;
  ContextRows const& rows_;
  std::vector<std::int64_t> shard_rows_;
  std::vector<std::int64_t> to_each_;
  std::int64_t local_ = 0;
};

/// A rank's rows of a parameter of the heads, or of its gradient.
Tensor own_heads(Tensor const& rows, int rank, std::int64_t heads) {
  return rows.empty() ? Tensor() : rows.rows(rank * heads, heads);
}

}  // namespace

ContextAttention::Activations ContextAttention::ulysses_forward(Task const& task, AttentionCall const& call,
                                                                Tensor const& output) const {
  std::int64_t const ranks = group_.size();
  if (call.heads % ranks != 0 || call.kv_heads % ranks != 0) {
    throw ConfigError(
        "parallel.context_mode = \"ulysses\" splits a rank's heads, {} ({} of keys), over "
        "parallel.context = {} ranks, which must divide them; parallel.context_mode = \"ring\" splits no heads",
        call.heads, call.kv_heads > 0 ? call.kv_heads : call.heads, ranks);
  }
  std::int64_t const width = call.q.dim(1) / ranks;
  std::int64_t const key_width = call.k.dim(1) / ranks;
  Exchange const queries(group_, task, *tensor_ops_, task.queries);
  AttentionCall whole = call;
  if (task.self) {
    Tensor const qkv = queries.to_heads(std::array{call.q, call.k, call.v});
    whole.q = qkv.columns(0, width);
    whole.k = qkv.columns(width, key_width), whole.v = qkv.columns(width + key_width, key_width);
  } else {
    whole.q = queries.to_heads(std::array{call.q});
    Tensor const kv = Exchange(group_, task, *tensor_ops_, task.keys).to_heads(std::array{call.k, call.v});
    whole.k = kv.columns(0, key_width), whole.v = kv.columns(key_width, key_width);
  }
  whole.queries = task.queries.whole.sequences;
  whole.keys = task.keys.whole.sequences;
  whole.heads = call.heads / ranks;
  whole.kv_heads = call.kv_heads / ranks;
  whole.bias = own_heads(call.bias, group_.rank(), whole.heads);
  whole.score_weight = own_heads(call.score_weight, group_.rank(), whole.heads);
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
  std::int64_t const key_width = call.k.dim(1);
  bool const self = task.self;
  ArenaScope const scope(task.arena);
  Exchange const queries(group_, task, *tensor_ops_, task.queries);
  Tensor const grad = queries.to_heads(std::array{grad_output});
  Tensor const of_queries = task.arena.allocate(call.q.dtype(), {call.q.dim(0), self ? width + 2 * key_width : width});
  Tensor const of_keys = self ? of_queries.columns(width, 2 * key_width)
                              : task.arena.allocate(call.k.dtype(), {call.k.dim(0), 2 * key_width});
  attention_->backward(task.execution, call, kept.output, kept.log_sum_exp, grad,
                       {of_queries.columns(0, width), of_keys.columns(0, key_width),
                        of_keys.columns(key_width, key_width), own_heads(gradients.bias, group_.rank(), call.heads),
                        own_heads(gradients.score_weight, group_.rank(), call.heads)});
  if (self) {
    queries.to_rows(of_queries, std::array{gradients.q, gradients.k, gradients.v});
  } else {
    queries.to_rows(of_queries, std::array{gradients.q});
    Exchange(group_, task, *tensor_ops_, task.keys).to_rows(of_keys, std::array{gradients.k, gradients.v});
  }
}

}  // namespace heddle
