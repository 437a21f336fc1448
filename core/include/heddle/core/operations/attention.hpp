#pragma once

#include <heddle/core/operations/dropout.hpp>
#include <heddle/core/operations/kernel.hpp>
#include <heddle/core/tensor/pack.hpp>
#include <memory>
#include <string>

namespace heddle {

struct AttentionProblem {
  DType dtype = DType::float32;
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  bool causal = false;
  float dropout_rate = 0;
};
/// In words, for messages.
std::string describe(AttentionProblem const& problem);
/// The part of a problem that measured times depend on (KernelTimings).
std::string timing_key(AttentionProblem const& problem);
/// The size of a call, beside its problem.
struct AttentionExtents {
  double queries = 0;       ///< query tokens
  double keys = 0;          ///< key tokens
  double pairs = 0;         ///< pairs of a query and a key that see each other, over all sequences
  bool accumulate = false;  ///< results are added to
};
/// Two matrix products, q kᵀ and weights v.
Cost forward_cost(AttentionProblem const& problem, AttentionExtents const& extents);
/// Five matrix products: q kᵀ again, and the gradients of weights, v, q and k.
Cost backward_cost(AttentionProblem const& problem, AttentionExtents const& extents);

/// Sequence i of `queries` attends to sequence i of `keys`. Causal: query p of a sequence of length n sees keys ≤ p +
/// (m - n), m being the keys' length, so that the last query sees every key. Sequences may have no tokens.
///
/// Where queries and keys are parts of longer sequences (context parallelism), `query_position` and `key_position` say
/// which: causal then means that a query sees the keys whose position is at most its own.
struct AttentionCall {
  Tensor q;  ///< [query tokens, heads * head_dim], rows may be strided
  Tensor k;  ///< [key tokens, heads * head_dim], rows may be strided
  Tensor v;  ///< as k
  Sequences queries;
  Sequences keys;
  std::int64_t heads = 0;
  double scale = 1;
  bool causal = false;
  /// Of the attention weights, before they meet v; sample and position are those of the query rows. A key's position is
  /// its index in its sequence, or its key_position.
  Dropout dropout{};
  Tensor query_position{};  ///< int32 [query tokens], ascending in each sequence; given with key_position or empty
  Tensor key_position{};    ///< int32 [key tokens], ascending in each sequence
  /// The call's keys join others that the same queries have met in earlier calls. Forward: `output` and `log_sum_exp`
  /// already hold the result over those (0 and -infinity: none yet) and end with that over all (online softmax).
  /// Backward: gradients are added (+=). In any call with positions `output` and `log_sum_exp` are those over all keys
  /// that the queries meet, of which the call may hold only some, whether or not it accumulates.
  bool accumulate = false;

  /// Throws where the heads do not divide the columns or the positions are not one per row of q and k.
  AttentionProblem problem() const;
};

struct AttentionGradients {
  Tensor q;  ///< =, or += where the call accumulates; like AttentionCall::q, rows may be strided
  Tensor k;  ///< as q
  Tensor v;  ///< as q
};

/// softmax(scale q kᵀ) v for each sequence and head, in memory linear in the sequence length (Dao et al. 2022).
class Attention : public Kernel {
 public:
  static constexpr char const* operation = "attention";
  using Problem = AttentionProblem;
  virtual bool supports(AttentionProblem const& problem) const = 0;
  static std::shared_ptr<Attention> observed(ObservedSelection<Attention> selection);
  /// output = [query tokens, heads * head_dim]; log_sum_exp = [query tokens, heads] in statistics_dtype: of the scaled
  /// scores, before dropout.
  virtual void forward(Execution& execution, AttentionCall const& call, Tensor const& output,
                       Tensor const& log_sum_exp) = 0;
  /// Every gradient is written (=) or, where the call accumulates, added (+=); rows of no sequence are left alone.
  virtual void backward(Execution& execution, AttentionCall const& call, Tensor const& output,
                        Tensor const& log_sum_exp, Tensor const& grad_output, AttentionGradients const& gradients) = 0;
};

}  // namespace heddle
