#pragma once

#include <heddle/core/operations/attention.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/core/parallel/communicator.hpp>
#include <heddle/core/tensor/arena.hpp>
#include <heddle/core/tensor/pack.hpp>
#include <memory>

namespace heddle {

/// Attention over sequences whose tokens are split over a context group, rows as in ContextRows. No rank ever holds a
/// matrix of scores beyond a tile of its kernel.
///
/// `ring` (Liu et al. 2023): blocks of keys and values travel from rank to rank; a rank's queries attend to one block
/// while it receives the next, a few heads at a time. In backward the blocks travel again, together with their
/// gradients, until they are back at their ranks. A rank holds two blocks at a time, never all keys. In bfloat16 the
/// blocks are sent unchanged, but partial results are float32, so that each result is rounded once: by kernels with
/// wide results (Attention::wide_results), otherwise by kernels for float32, which get widened copies.
/// With a window, of tokens or of blocks, a rank asks the others once for the rows that its queries see, those of its
/// neighbours and global tokens, instead: each row costs 2 w e bytes there and 2 w g back.
/// `ulysses` (Jacobs et al. 2023): a rank gets all tokens of a c-th of its heads, attends as one rank would, and sends
/// the tokens' rows back. The group's size must divide the heads.
/// docs/internals/communication.md has the bytes that each sends.
class ContextAttention {
 public:
  /// The memory and groups of a call. `arena` gets the tensors that forward keeps, and all others during the call.
  struct Task {
    Execution& execution;
    Arena& arena;
    ContextRows const& queries;
    ContextRows const& keys;
    bool self = false;  ///< self-attention: the keys are the queries' tokens
  };

  /// The forward call's results for backward, valid as long as the memory of the call and of the arena: for the ring
  /// this rank's rows, for ulysses all rows of some heads.
  struct Activations {
    AttentionCall call;
    Tensor output;
    Tensor log_sum_exp;
  };

  /// `attention` has wide results, or computes in sum_dtype.
  ContextAttention(Communicator group, ContextMode mode, std::shared_ptr<Attention> attention,
                   std::shared_ptr<TensorOps> tensor_ops);
  /// The dtype of partial results for activations of `dtype`.
  static DType sum_dtype(ContextMode mode, DType dtype) {
    return mode == ContextMode::ring ? statistics_dtype(dtype) : dtype;
  }

  /// output [query rows, heads * head_dim] = attention over all ranks' keys. `call` has this rank's rows, heads and
  /// dropout (with the global first_column); it fills no positions. Masks count in positions of the whole sequences;
  /// only self-attention has one. Collective over the group. Throws where the rows are not those of the group's split,
  /// and in ulysses where the group's size does not divide the heads.
  Activations forward(Task const& task, AttentionCall const& call, Tensor const& output) const;

  /// gradients = those of forward's q, k and v; they may be strided. Collective over the group.
  void backward(Task const& task, Activations const& kept, Tensor const& grad_output,
                AttentionGradients const& gradients) const;

 private:
  Activations ring_forward(Task const& task, AttentionCall const& call, Tensor const& output) const;
  void ring_backward(Task const& task, Activations const& kept, Tensor const& grad_output,
                     AttentionGradients const& gradients) const;
  Activations window_forward(Task const& task, AttentionCall const& call, Tensor const& output) const;
  void window_backward(Task const& task, Activations const& kept, Tensor const& grad_output,
                       AttentionGradients const& gradients) const;
  Activations ulysses_forward(Task const& task, AttentionCall const& call, Tensor const& output) const;
  void ulysses_backward(Task const& task, Activations const& kept, Tensor const& grad_output,
                        AttentionGradients const& gradients) const;

  /// The dtype of the tensors that the kernel reads.
  DType operand_dtype(DType dtype) const;

  Communicator group_;
  ContextMode mode_;
  std::shared_ptr<Attention> attention_;
  std::shared_ptr<TensorOps> tensor_ops_;
};

}  // namespace heddle
