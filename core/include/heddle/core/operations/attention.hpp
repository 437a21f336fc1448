#pragma once

#include <cmath>
#include <heddle/core/operations/dropout.hpp>
#include <heddle/core/operations/kernel.hpp>
#include <heddle/core/tensor/pack.hpp>
#include <memory>
#include <string>

namespace heddle {

/// The keys that a query sees, by their positions.
enum class MaskKind : std::uint8_t {
  bidirectional,  ///< all keys
  causal,         ///< keys up to its own position
  window,         ///< keys at most `left` before and `right` after its own position
  blocks,         ///< keys in at most `left` blocks before and `right` after its own
  prefix          ///< keys of the sequence's prefix, and keys up to its own position
};

struct AttentionMask {
  MaskKind kind = MaskKind::bidirectional;
  std::int64_t left = 0;   ///< in a window or blocks
  std::int64_t right = 0;  ///< keys or blocks after its own position, in a window or blocks
  std::int64_t block = 1;  ///< positions in a block
  /// The number of global tokens of a window or blocks mask: tokens at positions below it see all keys and are seen by
  /// all queries, except for keys that a causal mask hides (Beltagy et al. 2020; Zaheer et al. 2020, without their
  /// random blocks).
  std::int64_t global_tokens = 0;
  bool hides_later = false;  ///< in a window or blocks, keys after the query's position are hidden, too

  static constexpr AttentionMask bidirectional() { return {}; }
  static constexpr AttentionMask causal() { return {MaskKind::causal}; }
  /// A window or blocks, causal where `right` is 0.
  static constexpr AttentionMask window(std::int64_t left, std::int64_t right, std::int64_t global_tokens = 0) {
    return {MaskKind::window, left, right, 1, global_tokens, right == 0};
  }
  static constexpr AttentionMask blocks(std::int64_t block, std::int64_t left, std::int64_t right,
                                        std::int64_t global_tokens = 0) {
    return {MaskKind::blocks, left, right, block, global_tokens, right == 0};
  }
  static constexpr AttentionMask prefix() { return {MaskKind::prefix}; }
  constexpr bool is(MaskKind other) const { return kind == other; }
  /// A window, of tokens or of blocks.
  constexpr bool is_local() const { return is(MaskKind::window) || is(MaskKind::blocks); }
  /// By a local mask without its global tokens, a query at `position` sees keys in [first_key, end_key), and a key at
  /// `position` is seen by queries in [first_query, end_query).
  constexpr std::int64_t first_key(std::int64_t position) const { return (block_of(position) - left) * block; }
  constexpr std::int64_t end_key(std::int64_t position) const {
    return hides_later ? position + 1 : (block_of(position) + right + 1) * block;
  }
  constexpr std::int64_t first_query(std::int64_t position) const {
    return hides_later ? position : (block_of(position) - right) * block;
  }
  constexpr std::int64_t end_query(std::int64_t position) const { return (block_of(position) + left + 1) * block; }
  /// Whether a query at `position` sees the key at position `key`; a prefix mask's prefix has `prefix_length` tokens.
  /// The definition written out, for `reference`: it shares nothing with the bounds above, which other kernels use.
  constexpr bool sees(std::int64_t prefix_length, std::int64_t position, std::int64_t key) const {
    bool const earlier = key <= position;
    if (!is_local()) {
      return earlier || is(MaskKind::bidirectional) || (is(MaskKind::prefix) && key < prefix_length);
    }
    auto const size = static_cast<double>(block);
    double const distance =
        std::floor(static_cast<double>(key) / size) - std::floor(static_cast<double>(position) / size);
    bool const near = distance >= static_cast<double>(-left) && distance <= static_cast<double>(right);
    bool const global = key < global_tokens || position < global_tokens;
    return (near || global) && (!hides_later || earlier);
  }
  bool operator==(AttentionMask const&) const = default;

 private:
  /// Positions may be below 0, where there are more queries than keys.
  constexpr std::int64_t block_of(std::int64_t position) const {
    return (position < 0 ? position - block + 1 : position) / block;
  }
};
/// Describes the mask: "bidirectional", "causal", "window(512, 0)", "blocks of 64(1, 1) with 2 global", "prefix".
std::string describe(AttentionMask const& mask);

/// A function of scores that a plug-in brings (attention_score.hpp).
class AttentionScore;

/// The way in which a query and a key give a score, before a cap, biases and softmax.
enum class ScoreKind : std::uint8_t {
  dot_product,  ///< scale * q · k (Vaswani et al. 2017; with a scale of 1 Luong et al. 2015)
  additive,     ///< scale * w · tanh(q + k) (Bahdanau et al. 2015)
  linear,       ///< log(φ(q) · φ(k)), φ(x) = elu(x) + 1 (Katharopoulos et al. 2020); no scale
  function      ///< a plug-in's function of scale * q · k + bias, which gives the scores, or weights without softmax
};
/// The names that follow a mask's name.
template <>
inline constexpr std::array<std::string_view, 4> value_names<ScoreKind>{"", "additive", "linear", "function"};

struct AttentionProblem {
  DType dtype = DType::float32;
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t kv_heads = 0;  ///< 0: as many as heads
  AttentionMask mask{};
  ScoreKind score = ScoreKind::dot_product;
  std::shared_ptr<AttentionScore const> function{};  ///< of ScoreKind::function, null for others
  bool soft_cap = false;
  bool bias = false;
  bool positions = false;   ///< queries and keys are parts of longer sequences
  bool accumulate = false;  ///< the call adds more keys to earlier calls' results
  bool state = false;       ///< the call adds its keys to a state
  float dropout_rate = 0;

  /// True if each head has its own keys and values.
  bool own_keys() const { return kv_heads == 0 || kv_heads == heads; }
};
/// False where linear scores, which are not exponentials, are combined with a cap, a bias, dropout or a mask that is
/// neither bidirectional nor causal, where other scores have a state, and where a function, which is called on the
/// host, is combined with a cap or with kernels on a device. No implementation supports that.
bool is_defined(AttentionProblem const& problem);
std::string describe(AttentionProblem const& problem);
std::string timing_key(AttentionProblem const& problem);
/// The pairs of a query and a key that see each other in a sequence of `length` tokens which attend to each other, and
/// which has no prefix.
double visible_pairs(AttentionMask const& mask, std::int64_t length);
/// The size of a call, which its problem does not have.
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
/// `key_position` give their positions in the longer ones.
///
/// Head h of the queries uses head h / (heads / kv_heads) of the keys and values (Ainslie et al. 2023).
struct AttentionCall {
  Tensor q;  ///< [query tokens, heads * head_dim], rows may be strided
  Tensor k;  ///< [key tokens, kv_heads * head_dim], rows may be strided
  Tensor v;  ///< [key tokens, kv_heads * head_dim], rows may be strided
  Sequences queries;
  Sequences keys;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  ///< divides heads; 0: as many as heads
  double scale = 1;
  ScoreKind score = ScoreKind::dot_product;
  std::shared_ptr<AttentionScore const> function{};  ///< of ScoreKind::function
  Tensor score_weight{};                             ///< [heads, head_dim] in statistics_dtype: w of additive scores
  double soft_cap = 0;  ///< above 0: a score s becomes soft_cap * tanh(s / soft_cap) (Bello et al. 2017)
  AttentionMask mask{};
  Tensor prefix_length{};  ///< int32 [sequences], of a prefix mask: all queries see the keys at positions below it
  /// [heads, 2 r + 1] in statistics_dtype, or empty: column r + d is added to the (capped) scores at distance d = key
  /// position - query position; larger distances use the columns of -r and r. Serves relative positions (Raffel et al.
  /// 2020) and slopes (Press et al. 2022). All sequences share it; layers may share it, too.
  Tensor bias{};
  /// Dropout of the attention weights, before the product with v; sample and position belong to the query rows.
  Dropout dropout{};
  Tensor query_position{};  ///< int32 [query tokens], ascending in each sequence; given with key_position or empty
  Tensor key_position{};    ///< int32 [key tokens], ascending in each sequence
  /// The call adds more keys to the results of earlier calls with the same queries. Forward: `output` and
  /// `log_sum_exp` hold the result over the earlier keys (0 and -infinity: none yet) and end with that over all
  /// (online softmax). Backward: gradients are added (+=). In any call with positions, accumulating or not, backward's
  /// `output` and `log_sum_exp` cover all keys that the queries see, of which the call may hold only some.
  bool accumulate = false;
  /// For linear scores with a bidirectional mask: [sequences, kv_heads * head_dim * (head_dim + 1)] in
  /// statistics_dtype, the sums over earlier keys of φ(k) times (v, 1). Forward adds (+=) this call's keys, then all
  /// queries see all of them. Generation keeps it instead of keys and values; there is no backward pass.
  Tensor state{};

  /// Throws where heads and columns do not match, where positions are not one per row of q and k, where a prefix mask
  /// has no lengths, or where bias, score_weight or state have another shape or belong to another kind of score.
  AttentionProblem problem() const;
};

struct AttentionGradients {
  Tensor q;               ///< =, or += where the call accumulates; like AttentionCall::q, rows may be strided
  Tensor k;               ///< as q
  Tensor v;               ///< as q
  Tensor bias{};          ///< +=, [heads, 2 r + 1] in statistics_dtype; empty: none is wanted
  Tensor score_weight{};  ///< +=, [heads, head_dim] in statistics_dtype; empty only where the call has none
};

/// Computes softmax(scores) v for each sequence and head, in memory linear in the sequence length (Dao et al. 2022); in
/// the usual case the scores are scale q kᵀ + bias. A function that is not normalized gives the weights in place of
/// softmax.
class Attention : public Operation<AttentionProblem> {
 public:
  static constexpr char const* operation = "attention";
  static std::shared_ptr<Attention> observed(ObservedSelection<Attention> selection);
  /// output = [query tokens, heads * head_dim]; log_sum_exp = [query tokens, heads] in statistics_dtype: of the scores,
  /// before dropout; 0 where there is no softmax.
  virtual void forward(Execution& execution, AttentionCall const& call, Tensor const& output,
                       Tensor const& log_sum_exp) = 0;
  /// Every gradient is written (=) or, where the call accumulates, added (+=); rows that are in no sequence stay
  /// unchanged.
  virtual void backward(Execution& execution, AttentionCall const& call, Tensor const& output,
                        Tensor const& log_sum_exp, Tensor const& grad_output, AttentionGradients const& gradients) = 0;
  /// True if forward's output, and backward's gradients of q, k and v, may be in statistics_dtype where the tensors
  /// that the call reads are bfloat16: sums over several calls are then rounded once (context parallelism).
  virtual bool wide_results() const { return false; }
};

}  // namespace heddle
