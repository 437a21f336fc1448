#include <heddle/core/operations/kernel_author.hpp>

#include "support/factories.hpp"

namespace heddle {
namespace {

/// One head of one sequence, with the textbook formulas: scores are computed again wherever they are needed.
template <class Element>
struct Head {
  using Statistic = kernels::ArithmeticType<Element>;

  std::int64_t query_begin, query_count, key_begin, key_count, prefix_length;
  std::int64_t head, key_head, head_dim;
  double scale, soft_cap;
  ScoreKind kind;
  AttentionMask mask;
  kernels::Rows<Element> q, k, v;
  std::int32_t const *query_position, *key_position;
  Statistic const* bias;  ///< of this head, or null
  std::int64_t bias_reach;
  Statistic const* score_weight;  ///< of this head, or null
  kernels::DropoutRule dropout;

  /// The columns of a row of queries that belong to the head, and of its key and value head, which several heads may
  /// share.
  KOKKOS_INLINE_FUNCTION Element* of(kernels::Rows<Element> const& rows, std::int64_t row) const {
    return rows[row] + head * head_dim;
  }
  KOKKOS_INLINE_FUNCTION Element* of_key(kernels::Rows<Element> const& rows, std::int64_t row) const {
    return rows[row] + key_head * head_dim;
  }
  KOKKOS_INLINE_FUNCTION std::int64_t position_of_query(std::int64_t query) const {
    return query_position == nullptr ? query + (key_count - query_count)
                                     : std::int64_t{query_position[query_begin + query]};
  }
  KOKKOS_INLINE_FUNCTION std::int64_t position_of(std::int64_t key) const {
    return key_position == nullptr ? key : key_position[key_begin + key];
  }
  KOKKOS_INLINE_FUNCTION bool sees(std::int64_t query, std::int64_t key) const {
    std::int64_t const at = position_of(key);
    std::int64_t const own = position_of_query(query);
    switch (mask.kind) {
      case MaskKind::bidirectional:
        return true;
      case MaskKind::causal:
        return at <= own;
      case MaskKind::window:
        return ((at >= own - mask.left && at <= own + mask.right) || is_global(at, own)) &&
               (!mask.hides_later || at <= own);
      case MaskKind::blocks: {
        auto const block_of = [&](std::int64_t position) {
          return std::floor(static_cast<double>(position) / static_cast<double>(mask.block));
        };
        double const distance = block_of(at) - block_of(own);
        bool const near = distance >= static_cast<double>(-mask.left) && distance <= static_cast<double>(mask.right);
        return (near || is_global(at, own)) && (!mask.hides_later || at <= own);
      }
      case MaskKind::prefix:
        return at < prefix_length || at <= own;
    }
    return false;
  }
  KOKKOS_INLINE_FUNCTION bool is_global(std::int64_t at, std::int64_t own) const {
    return at < mask.global_tokens || own < mask.global_tokens;
  }
  /// The index of the head's bias that is added to the pair's score.
  KOKKOS_INLINE_FUNCTION std::int64_t bias_index(std::int64_t query, std::int64_t key) const {
    std::int64_t const distance = position_of(key) - position_of_query(query);
    return bias_reach + (distance < -bias_reach ? -bias_reach : (distance > bias_reach ? bias_reach : distance));
  }
  KOKKOS_INLINE_FUNCTION double dot(Element const* a, Element const* b) const {
    double sum = 0;
    for (std::int64_t i = 0; i < head_dim; ++i) {
      sum += kernels::wide<double>(a[i]) * kernels::wide<double>(b[i]);
    }
    return sum;
  }
  KOKKOS_INLINE_FUNCTION double tanh_of_sum(std::int64_t query, std::int64_t key, std::int64_t d) const {
    return std::tanh(kernels::wide<double>(of(q, query_begin + query)[d]) +
                     kernels::wide<double>(of_key(k, key_begin + key)[d]));
  }
  KOKKOS_INLINE_FUNCTION static double feature(double x) { return x > 0 ? x + 1 : std::exp(x); }
  KOKKOS_INLINE_FUNCTION double query_feature(std::int64_t query, std::int64_t d) const {
    return feature(kernels::wide<double>(of(q, query_begin + query)[d]));
  }
  KOKKOS_INLINE_FUNCTION double key_feature(std::int64_t key, std::int64_t d) const {
    return feature(kernels::wide<double>(of_key(k, key_begin + key)[d]));
  }
  /// The score before the cap and the bias; of linear scores, whose logarithm is the score, the product of features.
  KOKKOS_INLINE_FUNCTION double raw_score(std::int64_t query, std::int64_t key) const {
    double sum = 0;
    for (std::int64_t d = 0; kind == ScoreKind::additive && d < head_dim; ++d) {
      sum += static_cast<double>(score_weight[d]) * tanh_of_sum(query, key, d);
    }
    for (std::int64_t d = 0; kind == ScoreKind::linear && d < head_dim; ++d) {
      sum += query_feature(query, d) * key_feature(key, d);
    }
    if (kind == ScoreKind::linear) {
      return sum;
    }
    return scale * (kind == ScoreKind::additive ? sum : dot(of(q, query_begin + query), of_key(k, key_begin + key)));
  }
  KOKKOS_INLINE_FUNCTION double score(std::int64_t query, std::int64_t key) const {
    double const raw = raw_score(query, key);
    double const shaped =
        kind == ScoreKind::linear ? std::log(raw) : (soft_cap > 0 ? soft_cap * std::tanh(raw / soft_cap) : raw);
    return bias == nullptr ? shaped : shaped + static_cast<double>(bias[bias_index(query, key)]);
  }
  /// The derivative of score by raw_score.
  KOKKOS_INLINE_FUNCTION double slope(std::int64_t query, std::int64_t key) const {
    double const raw = kind == ScoreKind::linear || soft_cap > 0 ? raw_score(query, key) : 0.0;
    if (kind == ScoreKind::linear) {
      return 1 / raw;
    }
    double const tanh = soft_cap > 0 ? std::tanh(raw / soft_cap) : 0.0;
    return 1 - tanh * tanh;
  }
  /// The derivatives of raw_score by column d of the query and of the key.
  KOKKOS_INLINE_FUNCTION double slope_by_query(std::int64_t query, std::int64_t key, std::int64_t d) const {
    if (kind == ScoreKind::linear) {
      double const own = query_feature(query, d);
      return (own > 1 ? 1.0 : own) * key_feature(key, d);
    }
    return kind == ScoreKind::additive ? slope_by_sum(query, key, d)
                                       : scale * kernels::wide<double>(of_key(k, key_begin + key)[d]);
  }
  KOKKOS_INLINE_FUNCTION double slope_by_key(std::int64_t query, std::int64_t key, std::int64_t d) const {
    if (kind == ScoreKind::linear) {
      double const own = key_feature(key, d);
      return (own > 1 ? 1.0 : own) * query_feature(query, d);
    }
    return kind == ScoreKind::additive ? slope_by_sum(query, key, d)
                                       : scale * kernels::wide<double>(of(q, query_begin + query)[d]);
  }
  KOKKOS_INLINE_FUNCTION double slope_by_sum(std::int64_t query, std::int64_t key, std::int64_t d) const {
    double const tanh = tanh_of_sum(query, key, d);
    return scale * static_cast<double>(score_weight[d]) * (1 - tanh * tanh);
  }
  KOKKOS_INLINE_FUNCTION double kept(std::int64_t query, std::int64_t key) const {
    std::int64_t const position = position_of(key);
    std::int64_t const group = ((dropout.first_column + head) << 20) + position / 8;
    return dropout.active ? dropout.multiplier(query_begin + query, group, position % 8) : 1.0;
  }
  /// The log-sum-exp of the query's scores and one more, `others`.
  KOKKOS_INLINE_FUNCTION double log_sum_exp(std::int64_t query, double others) const {
    double maximum = others;
    for (std::int64_t key = 0; key < key_count; ++key) {
      maximum = sees(query, key) && score(query, key) > maximum ? score(query, key) : maximum;
    }
    double sum = others > -INFINITY ? std::exp(others - maximum) : 0.0;
    for (std::int64_t key = 0; key < key_count; ++key) {
      sum += sees(query, key) ? std::exp(score(query, key) - maximum) : 0.0;
    }
    return sum > 0 ? maximum + std::log(sum) : maximum;
  }
};

/// to[d] = share * to[d] + the sum over 0 ≤ i < count of factor_of(i) * value_of(i, d), rounded once.
template <class Element, class FactorOf, class ValueOf>
KOKKOS_INLINE_FUNCTION void sum_terms(Element* to, std::int64_t head_dim, double share, std::int64_t count,
                                      FactorOf const& factor_of, ValueOf const& value_of) {
  constexpr std::int64_t columns = 32;  // at once
  for (std::int64_t begin = 0; begin < head_dim; begin += columns) {
    std::int64_t const end = head_dim - begin < columns ? head_dim : begin + columns;
    double sums[columns];
    for (std::int64_t d = begin; d < end; ++d) {
      sums[d - begin] = share > 0 ? share * kernels::wide<double>(to[d]) : 0.0;
    }
    for (std::int64_t i = 0; i < count; ++i) {
      double const factor = factor_of(i);
      for (std::int64_t d = begin; factor != 0 && d < end; ++d) {
        sums[d - begin] += factor * value_of(i, d);
      }
    }
    for (std::int64_t d = begin; d < end; ++d) {
      to[d] = kernels::narrow<Element>(sums[d - begin]);
    }
  }
}

template <class Element>
struct Call {
  using Statistic = kernels::ArithmeticType<Element>;

  kernels::Rows<Element> q, k, v;
  std::int32_t const *query_begin, *query_length, *key_begin, *key_length;
  std::int32_t const *query_position, *key_position, *prefix_length;
  kernels::Rows<Statistic> bias, score_weight;
  std::int64_t bias_reach;
  std::int64_t count, heads, heads_per_key_head, head_dim;
  double scale, soft_cap;
  ScoreKind kind;
  AttentionMask mask;
  bool accumulate;
  kernels::DropoutRule dropout;

  explicit Call(AttentionCall const& call)
      : q(kernels::rows_of<Element>(call.q)),
        k(kernels::rows_of<Element>(call.k)),
        v(kernels::rows_of<Element>(call.v)),
        query_begin(call.queries.begin.data<std::int32_t>()),
        query_length(call.queries.length.data<std::int32_t>()),
        key_begin(call.keys.begin.data<std::int32_t>()),
        key_length(call.keys.length.data<std::int32_t>()),
        query_position(kernels::rows_of<std::int32_t>(call.query_position).data),
        key_position(kernels::rows_of<std::int32_t>(call.key_position).data),
        prefix_length(kernels::rows_of<std::int32_t>(call.prefix_length).data),
        bias(kernels::rows_of<Statistic>(call.bias)),
        score_weight(kernels::rows_of<Statistic>(call.score_weight)),
        bias_reach(call.bias.empty() ? 0 : call.bias.dim(1) / 2),
        count(call.queries.count),
        heads(call.heads),
        heads_per_key_head(call.kv_heads > 0 ? call.heads / call.kv_heads : 1),
        head_dim(call.q.dim(1) / call.heads),
        scale(call.scale),
        soft_cap(call.soft_cap),
        kind(call.score),
        mask(call.mask),
        accumulate(call.accumulate),
        dropout(call.dropout) {}

  KOKKOS_INLINE_FUNCTION std::int64_t key_heads() const { return heads / heads_per_key_head; }

  KOKKOS_INLINE_FUNCTION Head<Element> head(std::int64_t sequence, std::int64_t head) const {
    return {query_begin[sequence],
            query_length[sequence],
            key_begin[sequence],
            key_length[sequence],
            prefix_length == nullptr ? 0 : prefix_length[sequence],
            head,
            head / heads_per_key_head,
            head_dim,
            scale,
            soft_cap,
            kind,
            mask,
            q,
            k,
            v,
            query_position,
            key_position,
            bias ? bias[head] : nullptr,
            bias_reach,
            score_weight ? score_weight[head] : nullptr,
            dropout};
  }
};

template <class Element>
void run_forward(Execution& execution, AttentionCall const& attention, Tensor const& output,
                 Tensor const& log_sum_exp) {
  using Real = kernels::ArithmeticType<Element>;
  Call<Element> const call(attention);
  auto const out = kernels::rows_of<Element>(output);
  auto const statistics = kernels::rows_of<Real>(log_sum_exp);
  kernels::for_each(
      execution, "reference attention forward", call.count * call.heads, KOKKOS_LAMBDA(std::int64_t item) {
        Head<Element> const head = call.head(item / call.heads, item % call.heads);
        for (std::int64_t query = 0; query < head.query_count; ++query) {
          Real& statistic = statistics[head.query_begin + query][head.head];
          double const others = call.accumulate ? static_cast<double>(statistic) : -INFINITY;
          double const normalizer = head.log_sum_exp(query, others);
          double const share = others > -INFINITY ? std::exp(others - normalizer) : 0.0;
          statistic = static_cast<Real>(normalizer);
          sum_terms(
              head.of(out, head.query_begin + query), head.head_dim, share, head.key_count,
              [&](std::int64_t key) {
                double const weight = head.sees(query, key) ? std::exp(head.score(query, key) - normalizer) : 0.0;
                return weight * head.kept(query, key);
              },
              [&](std::int64_t key, std::int64_t d) {
                return kernels::wide<double>(head.of_key(head.v, head.key_begin + key)[d]);
              });
        }
      });
}

/// Tensors that backward reads and writes beside the call.
template <class Element>
struct BackwardRows {
  kernels::Rows<Element> output, grad_output;
  kernels::Rows<Element> grad_q, grad_k, grad_v;
  kernels::Rows<kernels::ArithmeticType<Element>> log_sum_exp;
  kernels::Rows<kernels::ArithmeticType<Element>> grad_bias, grad_score_weight;
};

/// A query-key pair's weight after dropout, which times grad_output is its part of grad_v, and the gradients of its
/// score and of its raw_score.
struct PairFactors {
  double weight = 0;
  double score = 0;
  double raw_score = 0;
};

/// With weight p, kept multiplier m, dp = grad_output · v and delta = grad_output · output: dv += p m grad_output,
/// d(score) = p (m dp - delta).
template <class Element>
KOKKOS_INLINE_FUNCTION PairFactors pair_factors(Head<Element> const& head, BackwardRows<Element> const& rows,
                                                std::int64_t query, std::int64_t key) {
  if (!head.sees(query, key)) {
    return {};
  }
  std::int64_t const row = head.query_begin + query;
  Element const* const grad = head.of(rows.grad_output, row);
  double const delta = head.dot(grad, head.of(rows.output, row));
  double const weight = std::exp(head.score(query, key) - kernels::wide<double>(rows.log_sum_exp[row][head.head]));
  double const kept = head.kept(query, key);
  double const grad_weight = kept * head.dot(grad, head.of_key(head.v, head.key_begin + key));
  double const grad_score = weight * (grad_weight - delta);
  return {weight * kept, grad_score, grad_score * head.slope(query, key)};
}

template <class Element>
KOKKOS_INLINE_FUNCTION void write_grad_q(Head<Element> const& head, BackwardRows<Element> const& rows, double share) {
  for (std::int64_t query = 0; query < head.query_count; ++query) {
    sum_terms(
        head.of(rows.grad_q, head.query_begin + query), head.head_dim, share, head.key_count,
        [&](std::int64_t key) { return pair_factors(head, rows, query, key).raw_score; },
        [&](std::int64_t key, std::int64_t d) { return head.slope_by_query(query, key, d); });
  }
}

/// grad_k and grad_v of a sequence's key head: sums over the queries of all heads that share it.
template <class Element>
KOKKOS_INLINE_FUNCTION void write_grad_k_and_v(Call<Element> const& call, BackwardRows<Element> const& rows,
                                               std::int64_t sequence, std::int64_t key_head) {
  double const share = call.accumulate ? 1 : 0;
  Head<Element> const first = call.head(sequence, key_head * call.heads_per_key_head);
  std::int64_t const pairs = first.query_count * call.heads_per_key_head;
  auto const head_of = [&](std::int64_t pair) { return call.head(sequence, first.head + pair / first.query_count); };
  for (std::int64_t key = 0; key < first.key_count; ++key) {
    std::int64_t const row = first.key_begin + key;
    sum_terms(
        first.of_key(rows.grad_k, row), first.head_dim, share, pairs,
        [&](std::int64_t pair) { return pair_factors(head_of(pair), rows, pair % first.query_count, key).raw_score; },
        [&](std::int64_t pair, std::int64_t d) {
          return head_of(pair).slope_by_key(pair % first.query_count, key, d);
        });
    sum_terms(
        first.of_key(rows.grad_v, row), first.head_dim, share, pairs,
        [&](std::int64_t pair) { return pair_factors(head_of(pair), rows, pair % first.query_count, key).weight; },
        [&](std::int64_t pair, std::int64_t d) {
          return kernels::wide<double>(
              head_of(pair).of(rows.grad_output, first.query_begin + pair % first.query_count)[d]);
        });
  }
}

template <class Element>
void run_backward(Execution& execution, AttentionCall const& attention, BackwardRows<Element> const& rows) {
  Call<Element> const call(attention);
  kernels::for_each(
      execution, "reference attention backward", call.count * call.heads, KOKKOS_LAMBDA(std::int64_t item) {
        write_grad_q(call.head(item / call.heads, item % call.heads), rows, call.accumulate ? 1 : 0);
      });
  kernels::for_each(
      execution, "reference attention backward", call.count * call.key_heads(), KOKKOS_LAMBDA(std::int64_t item) {
        write_grad_k_and_v(call, rows, item / call.key_heads(), item % call.key_heads());
      });
}

/// Calls `add(head, query, key)` for all pairs of one head of all sequences, in their order.
template <class Element, class Add>
KOKKOS_INLINE_FUNCTION void for_each_pair(Call<Element> const& call, std::int64_t head_index, Add const& add) {
  for (std::int64_t sequence = 0; sequence < call.count; ++sequence) {
    Head<Element> const head = call.head(sequence, head_index);
    for (std::int64_t pair = 0; pair < head.query_count * head.key_count; ++pair) {
      add(head, pair / head.key_count, pair % head.key_count);
    }
  }
}

/// One work item for each bias.
template <class Element>
void add_bias_gradients(Execution& execution, AttentionCall const& attention, BackwardRows<Element> const& rows) {
  Call<Element> const call(attention);
  std::int64_t const distances = attention.bias.dim(1);
  kernels::for_each(
      execution, "reference attention bias gradient", call.heads * distances, KOKKOS_LAMBDA(std::int64_t item) {
        double sum = 0;
        for_each_pair(call, item / distances, [&](Head<Element> const& head, std::int64_t query, std::int64_t key) {
          bool const at_distance = head.bias_index(query, key) == item % distances;
          sum += at_distance ? pair_factors(head, rows, query, key).score : 0.0;
        });
        rows.grad_bias[item / distances][item % distances] += static_cast<typename Head<Element>::Statistic>(sum);
      });
}

/// One work item for each weight of additive scores.
template <class Element>
void add_score_weight_gradients(Execution& execution, AttentionCall const& attention,
                                BackwardRows<Element> const& rows) {
  Call<Element> const call(attention);
  kernels::for_each(
      execution, "reference attention score weight gradient", call.heads * call.head_dim,
      KOKKOS_LAMBDA(std::int64_t item) {
        std::int64_t const d = item % call.head_dim;
        double sum = 0;
        for_each_pair(call, item / call.head_dim, [&](Head<Element> const& head, std::int64_t query, std::int64_t key) {
          sum += pair_factors(head, rows, query, key).raw_score * head.scale * head.tanh_of_sum(query, key, d);
        });
        rows.grad_score_weight[item / call.head_dim][d] += static_cast<typename Head<Element>::Statistic>(sum);
      });
}

/// Forward of a call with a state, one work item for each sequence and head of keys.
template <class Element>
void run_with_state(Execution& execution, AttentionCall const& attention, Tensor const& output,
                    Tensor const& log_sum_exp) {
  using Real = kernels::ArithmeticType<Element>;
  Call<Element> const call(attention);
  auto const out = kernels::rows_of<Element>(output);
  auto const statistics = kernels::rows_of<Real>(log_sum_exp);
  auto const states = kernels::rows_of<Real>(attention.state);
  kernels::for_each(
      execution, "reference attention with a state", call.count * call.key_heads(), KOKKOS_LAMBDA(std::int64_t item) {
        std::int64_t const columns = call.head_dim + 1;
        std::int64_t const key_head = item % call.key_heads();
        Real* const state = states[item / call.key_heads()] + key_head * call.head_dim * columns;
        Head<Element> const first = call.head(item / call.key_heads(), key_head * call.heads_per_key_head);
        for (std::int64_t entry = 0; entry < call.head_dim * columns; ++entry) {
          double sum = static_cast<double>(state[entry]);
          for (std::int64_t key = 0; key < first.key_count; ++key) {
            std::int64_t const d = entry % columns;
            double const value =
                d < call.head_dim ? kernels::wide<double>(first.of_key(first.v, first.key_begin + key)[d]) : 1.0;
            sum += first.key_feature(key, entry / columns) * value;
          }
          state[entry] = static_cast<Real>(sum);
        }
        for (std::int64_t row = 0; row < first.query_count * call.heads_per_key_head; ++row) {
          std::int64_t const query = row / call.heads_per_key_head;
          Head<Element> const head = call.head(item / call.key_heads(), first.head + row % call.heads_per_key_head);
          auto const read = [&](std::int64_t column) {
            double sum = 0;
            for (std::int64_t d = 0; d < call.head_dim; ++d) {
              sum += head.query_feature(query, d) * static_cast<double>(state[d * columns + column]);
            }
            return sum;
          };
          double const normalizer = read(call.head_dim);
          for (std::int64_t d = 0; d < call.head_dim; ++d) {
            head.of(out, head.query_begin + query)[d] =
                kernels::narrow<Element>(normalizer > 0 ? read(d) / normalizer : 0.0);
          }
          statistics[head.query_begin + query][head.head] = static_cast<Real>(std::log(normalizer));
        }
      });
}

class ReferenceAttention : public Attention {
 public:
  bool supports(AttentionProblem const& problem) const override {
    return problem.dtype != DType::int32 && is_defined(problem);
  }
  void forward(Execution& execution, AttentionCall const& call, Tensor const& output,
               Tensor const& log_sum_exp) override {
    kernels::with_floating(call.q.dtype(), [&]<class Element>(Element) {
      auto const& run = call.state.empty() ? run_forward<Element> : run_with_state<Element>;
      run(execution, call, output, log_sum_exp);
    });
  }
  void backward(Execution& execution, AttentionCall const& call, Tensor const& output, Tensor const& log_sum_exp,
                Tensor const& grad_output, AttentionGradients const& gradients) override {
    kernels::with_floating(call.q.dtype(), [&]<class Element>(Element) {
      BackwardRows<Element> const rows{kernels::rows_of<Element>(output),
                                       kernels::rows_of<Element>(grad_output),
                                       kernels::rows_of<Element>(gradients.q),
                                       kernels::rows_of<Element>(gradients.k),
                                       kernels::rows_of<Element>(gradients.v),
                                       kernels::rows_of<kernels::ArithmeticType<Element>>(log_sum_exp),
                                       kernels::rows_of<kernels::ArithmeticType<Element>>(gradients.bias),
                                       kernels::rows_of<kernels::ArithmeticType<Element>>(gradients.score_weight)};
      run_backward<Element>(execution, call, rows);
      if (!gradients.bias.empty()) {
        add_bias_gradients<Element>(execution, call, rows);
      }
      if (!gradients.score_weight.empty()) {
        add_score_weight_gradients<Element>(execution, call, rows);
      }
    });
  }
};

}  // namespace

void add_attention_kernels(KernelRegistries& registries) {
  registries.of<Attention>().add("reference", speeds::reference, std::make_shared<ReferenceAttention>());
}

}  // namespace heddle
