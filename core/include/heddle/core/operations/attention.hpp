#pragma once

#include <array>
#include <heddle/core/operations/dropout.hpp>
#include <heddle/core/operations/kernel.hpp>
#include <heddle/core/tensor/pack.hpp>
#include <memory>
#include <string>
#include <string_view>

namespace heddle {

/// The keys that a query sees, by their positions.
enum class MaskKind : std::uint8_t {
  bidirectional,  ///< all
  causal,         ///< those at most at its own position
  window,         ///< those at most `left` before and `right` after its own position
  prefix          ///< those of the sequence's prefix, and those at most at its own position
};

struct AttentionMask {
  MaskKind kind = MaskKind::bidirectional;
  std::int64_t left = 0;   ///< of a window
  std::int64_t right = 0;  ///< of a window; 0: causal

  static constexpr AttentionMask bidirectional() { return {}; }
  static constexpr AttentionMask causal() { return {MaskKind::causal}; }
  static constexpr AttentionMask window(std::int64_t left, std::int64_t right) {
    return {MaskKind::window, left, right};
  }
  static constexpr AttentionMask prefix() { return {MaskKind::prefix}; }
  constexpr bool is(MaskKind other) const { return kind == other; }
  bool operator==(AttentionMask const&) const = default;
};
/// The mask in words: "bidirectional", "causal", "window(512, 0)", "prefix".
std::string describe(AttentionMask const& mask);

/// The way in which a query and a key give a score, before biases and softmax.
enum class ScoreKind : std::uint8_t {
  scaled_dot_product  ///< scale * q · k
};
/// In words, beside those of a mask; empty for the usual one.
constexpr std::string_view name_of(ScoreKind score) {
  constexpr std::array<std::string_view, 1> names{""};
  return names[static_cast<std::size_t>(score)];
}

struct AttentionProblem {
  DType dtype = DType::float32;
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t kv_heads = 0;  ///< 0: as many as heads
  AttentionMask mask{};
  ScoreKind score = ScoreKind::scaled_dot_product;
  bool bias = false;
  bool positions = false;   ///< queries and keys are parts of longer sequences
  bool accumulate = false;  ///< the call adds more keys to earlier calls' results
  float dropout_rate = 0;

  /// True if each head has its own keys and values.
  bool own_keys() const { return kv_heads == 0 || kv_heads == heads; }
};
/// The problem in words, for messages.
std::string describe(AttentionProblem const& problem);
/// The part of a problem that measured times depend on (KernelTimings).
std::string timing_key(AttentionProblem const& problem);
/// The size of a call, beside its problem.
struct AttentionExtents {
  double queries = 0;       ///< query tokens
  double keys = 0;          ///< key tokens
  double pairs = 0;         ///< pairs of a query and a key that see each other, over all sequences
  bool accumulate = false;  ///< results are added to earlier ones
};
/// Two matrix products, q kᵀ and weights v.
Cost forward_cost(AttentionProblem const& problem, AttentionExtents const& extents);
/// Five matrix products: q kᵀ again, and the gradients of weights, v, q and k.
Cost backward_cost(AttentionProblem const& problem, AttentionExtents const& extents);

/// Sequence i of `queries` attends to sequence i of `keys`; sequences may have no tokens. A key's position is its
/// index in its sequence. With n queries and m keys, query p has position p + (m - n), so that the last query is at
/// the last key. Where queries and keys are parts of longer sequences (context parallelism), `query_position` and
/// `key_position` give their positions in those.
///
/// Head h of the queries uses head h / (heads / kv_heads) of the keys and values (Ainslie et al. 2023).
struct AttentionCall {
  Tensor q;  ///< [query tokens, heads * head_dim], rows may be strided
  Tensor k;  ///< [key tokens, kv_heads * head_dim], rows may be strided
  Tensor v;  ///< as k
  Sequences queries;
  Sequences keys;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  ///< divides heads; 0: as many as heads
  double scale = 1;
  ScoreKind score = ScoreKind::scaled_dot_product;
  AttentionMask mask{};
  Tensor prefix_length{};  ///< int32 [sequences], of a prefix mask: all queries see the keys at positions below it
  /// [heads, 2 r + 1] in statistics_dtype, or empty: column r + d is added to the scaled scores at distance d = key
  /// position - query position; larger distances use the columns of -r and r. Serves relative positions (Raffel et al.
  /// 2020) and slopes (Press et al. 2022). All sequences share it; layers may share it, too.
  Tensor bias{};
  /// Dropout of the attention weights, before the product with v; sample and position are those of the query rows.
  Dropout dropout{};
  Tensor query_position{};  ///< int32 [query tokens], ascending in each sequence; given with key_position or empty
  Tensor key_position{};    ///< int32 [key tokens], ascending in each sequence
  /// The call adds more keys to the results of earlier calls with the same queries. Forward: `output` and
  /// `log_sum_exp` hold the result over the earlier keys (0 and -infinity: none yet) and end with that over all
  /// (online softmax). Backward: gradients are added (+=). In any call with positions, accumulating or not, backward's
  /// `output` and `log_sum_exp` are those over all keys that the queries see, of which the call may hold only some.
  bool accumulate = false;

  /// Throws where heads and columns do not match, where positions are not one per row of q and k, where a prefix mask
  /// has no lengths, or where the bias has another shape.
  AttentionProblem problem() const;
};

struct AttentionGradients {
  Tensor q;       ///< =, or += where the call accumulates; like AttentionCall::q, rows may be strided
  Tensor k;       ///< as q
  Tensor v;       ///< as q
  Tensor bias{};  ///< +=, [heads, 2 r + 1] in statistics_dtype; empty: none is wanted
};

/// Computes softmax(scale q kᵀ + bias) v for each sequence and head, in memory linear in the sequence length (Dao et
/// al. 2022).
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
  /// Every gradient is written (=) or, where the call accumulates, added (+=); rows that are in no sequence stay
  /// unchanged.
  virtual void backward(Execution& execution, AttentionCall const& call, Tensor const& output,
                        Tensor const& log_sum_exp, Tensor const& grad_output, AttentionGradients const& gradients) = 0;
};

}  // namespace heddle
