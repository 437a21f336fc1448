#include <algorithm>
#include <array>
#include <heddle/core/attention/context_attention.hpp>
#include <heddle/core/base/index_range.hpp>
#include <heddle/core/operations/attention.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <vector>

#include "context_tensors.hpp"

namespace heddle {

namespace {

constexpr int block_tag = 0;
constexpr int gradient_tag = 1;

/// The largest number of slices of heads into which a block's work is divided: MPI moves bytes between two of them.
constexpr int max_slices = 8;

/// Matrices that travel around the ring, in two buffers: this rank computes with one while the other is received.
class RingBuffers {
 public:
  RingBuffers(Communicator const& group, ContextAttention::Task const& task, DType dtype, std::int64_t columns)
      : group_(group), rows_(task.keys) {
    std::int64_t const max_rows = std::ranges::max_element(rows_.shards, {}, &TokenRows::tokens)->tokens;
    for (KeysAndValues& buffer : buffers_) {
      buffer.both = task.arena.allocate(dtype, {max_rows, columns});
    }
  }

  int ranks() const { return group_.size(); }
  /// The rows of the keys that this rank holds in a step: those of its own in step 0, then the previous rank's.
  TokenRows const& rows(int step) const {
    return rows_.shards[static_cast<std::size_t>((group_.rank() + ranks() - step % ranks()) % ranks())];
  }
  KeysAndValues at(int step) const { return buffers_[static_cast<std::size_t>(step % 2)].first(rows(step).tokens); }
  void start_send(int step, int tag) { send_ = group_.start_send(at(step).both, (group_.rank() + 1) % ranks(), tag); }
  /// Receives the matrix of a step from the previous rank.
  void start_receive(int step, int tag) {
    receive_ = group_.start_receive(at(step).both, (group_.rank() + ranks() - 1) % ranks(), tag);
  }
  void progress() {
    receive_.progress();
    send_.progress();
  }
  void wait() {
    receive_.wait();
    send_.wait();
  }

 private:
  Communicator const& group_;
  ContextRows const& rows_;
  std::array<KeysAndValues, 2> buffers_;
  Transfer send_, receive_;
};

/// The blocks of keys and values of the ring: this rank computes with one while it receives the next.
class BlockRing {
 public:
  BlockRing(Communicator const& group, ContextAttention::Task const& task, TensorOps& tensor_ops,
            AttentionCall const& call)
      : buffers_(group, task, call.k.dtype(), 2 * call.k.dim(1)) {
    tensor_ops.copy(task.execution, call.k, block().keys());
    tensor_ops.copy(task.execution, call.v, block().values());
  }

  int step() const { return step_; }
  bool done() const { return step_ == buffers_.ranks(); }
  TokenRows const& rows() const { return buffers_.rows(step_); }
  KeysAndValues block() const { return buffers_.at(step_); }

  /// Sends the block to the next rank and receives the previous rank's; does nothing in the last step.
  void start() {
    if (step_ + 1 < buffers_.ranks()) {
      buffers_.start_receive(step_ + 1, block_tag);
      buffers_.start_send(step_, block_tag);
    }
  }
  void progress() { buffers_.progress(); }
  void advance() {
    buffers_.wait();
    ++step_;
  }

 private:
  RingBuffers buffers_;
  int step_ = 0;
};

/// The gradients of some heads of the ring's blocks. In each step this rank adds its part to the gradients that the
/// previous rank sent and sends them on; they have a whole step's time for that, because the next step has another
/// buffer.
class GradientRing {
 public:
  GradientRing(Communicator const& group, ContextAttention::Task const& task, DType dtype, std::int64_t width)
      : buffers_(group, task, dtype, 2 * width) {}

  /// The gradient of this step's block, as the ranks before left it; unset in step 0.
  KeysAndValues begin(int step) {
    buffers_.wait();
    buffers_.start_receive(step + 1, gradient_tag);
    return buffers_.at(step);
  }
  void end(int step) { buffers_.start_send(step, gradient_tag); }
  void progress() { buffers_.progress(); }
  /// The gradient of this rank's own block, after the last step.
  KeysAndValues home() {
    buffers_.wait();
    return buffers_.at(buffers_.ranks());
  }

 private:
  RingBuffers buffers_;
};

/// Consecutive heads of a call, with the heads of keys that they share.
struct HeadRange {
  IndexRange key_heads;
  std::int64_t sharing, head_dim;

  std::int64_t key_width() const { return key_heads.count() * head_dim; }
  Tensor columns(Tensor const& matrix) const {
    return matrix.columns(key_heads.begin * sharing * head_dim, key_width() * sharing);
  }
  Tensor key_columns(Tensor const& matrix) const { return matrix.columns(key_heads.begin * head_dim, key_width()); }
  Tensor statistics(Tensor const& matrix) const {
    return matrix.columns(key_heads.begin * sharing, key_heads.count() * sharing);
  }
  /// The rows of a parameter of the heads, or of its gradient.
  Tensor of_heads(Tensor const& rows) const {
    return rows.empty() ? Tensor() : rows.rows(key_heads.begin * sharing, key_heads.count() * sharing);
  }

  AttentionCall of(AttentionCall call) const {
    call.q = columns(call.q);
    call.k = key_columns(call.k);
    call.v = key_columns(call.v);
    call.heads = key_heads.count() * sharing;
    call.kv_heads = key_heads.count();
    call.bias = of_heads(call.bias);
    call.score_weight = of_heads(call.score_weight);
    call.dropout.first_column += static_cast<std::int32_t>(key_heads.begin * sharing);
    return call;
  }
};

std::int64_t key_heads_of(AttentionCall const& call) {
  return call.kv_heads > 0 ? call.kv_heads : call.heads;
}

int slices_of(AttentionCall const& call) {
  return static_cast<int>(std::min<std::int64_t>(key_heads_of(call), max_slices));
}

HeadRange slice_of(AttentionCall const& call, int index) {
  return {share(key_heads_of(call), index, slices_of(call)), call.heads / key_heads_of(call),
          call.q.dim(1) / call.heads};
}

/// The call with the keys that this rank holds now.
AttentionCall call_with(AttentionCall call, BlockRing const& blocks, Widened const& widened, TokenRows const& queries) {
  KeysAndValues const block{widened(blocks.block().both)};
  call.k = block.keys();
  call.v = block.values();
  call.keys = blocks.rows().sequences;
  call.query_position = queries.position;
  call.key_position = blocks.rows().position;
  call.accumulate = blocks.step() > 0;
  return call;
}

}  // namespace

ContextAttention::Activations ContextAttention::ring_forward(Task const& task, AttentionCall const& call,
                                                             Tensor const& output) const {
  Activations kept{call, output, task.arena.allocate(statistics_dtype(call.q.dtype()), {call.q.dim(0), call.heads})};
  TokenRows const& queries = task.queries.shards[static_cast<std::size_t>(group_.rank())];
  ArenaScope const scope(task.arena);
  Widened const widened(task, *tensor_ops_, operand_dtype(call.q.dtype()));
  Widened const summed(task, *tensor_ops_, sum_dtype(mode_, call.q.dtype()));
  AttentionCall wide = call;
  wide.q = widened(call.q);
  Tensor const sums = summed.room_for(output);
  BlockRing blocks(group_, task, *tensor_ops_, call);
  for (; !blocks.done(); blocks.advance()) {
    blocks.start();
    ArenaScope const block_scope(task.arena);
    AttentionCall const block = call_with(wide, blocks, widened, queries);
    for (int index = 0; index < slices_of(call); ++index) {
      HeadRange const slice = slice_of(call, index);
      attention_->forward(task.execution, slice.of(block), slice.columns(sums), slice.statistics(kept.log_sum_exp));
      blocks.progress();
    }
  }
  summed.copy(sums, output);
  return kept;
}

void ContextAttention::ring_backward(Task const& task, Activations const& kept, Tensor const& grad_output,
                                     AttentionGradients const& gradients) const {
  AttentionCall const& call = kept.call;
  TokenRows const& queries = task.queries.shards[static_cast<std::size_t>(group_.rank())];
  ArenaScope const scope(task.arena);
  DType const sums = sum_dtype(mode_, call.q.dtype());
  Widened const widened(task, *tensor_ops_, operand_dtype(call.q.dtype()));
  Widened const summed(task, *tensor_ops_, sums);
  AttentionCall wide = call;
  wide.q = widened(call.q);
  Tensor const output = widened(kept.output);
  Tensor const wide_grad_output = widened(grad_output);
  Tensor const grad_q = summed.room_for(gradients.q);
  BlockRing blocks(group_, task, *tensor_ops_, call);
  std::vector<GradientRing> block_gradients;
  block_gradients.reserve(static_cast<std::size_t>(slices_of(call)));
  for (int index = 0; index < slices_of(call); ++index) {
    block_gradients.emplace_back(group_, task, sums, slice_of(call, index).key_width());
  }
  for (; !blocks.done(); blocks.advance()) {
    blocks.start();
    ArenaScope const block_scope(task.arena);
    AttentionCall const block = call_with(wide, blocks, widened, queries);
    for (int index = 0; index < slices_of(call); ++index) {
      HeadRange const slice = slice_of(call, index);
      GradientRing& ring = block_gradients[static_cast<std::size_t>(index)];
      KeysAndValues const gradient = ring.begin(blocks.step());
      attention_->backward(task.execution, slice.of(block), slice.columns(output), slice.statistics(kept.log_sum_exp),
                           slice.columns(wide_grad_output),
                           {slice.columns(grad_q), gradient.keys(), gradient.values(), slice.of_heads(gradients.bias),
                            slice.of_heads(gradients.score_weight)});
      ring.end(blocks.step());
      blocks.progress();
      std::ranges::for_each(block_gradients, &GradientRing::progress);
    }
  }
  summed.copy(grad_q, gradients.q);
  for (int index = 0; index < slices_of(call); ++index) {
    KeysAndValues const home = block_gradients[static_cast<std::size_t>(index)].home();
    tensor_ops_->copy(task.execution, home.keys(), slice_of(call, index).key_columns(gradients.k));
    tensor_ops_->copy(task.execution, home.values(), slice_of(call, index).key_columns(gradients.v));
  }
}

}  // namespace heddle
