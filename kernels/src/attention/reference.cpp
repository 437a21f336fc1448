#include <heddle/core/operations/kernel_author.hpp>

#include "support/factories.hpp"

namespace heddle {
namespace {

/// One head of one sequence, with the formulas as they stand in a textbook: scores are computed again wherever needed.
template <class Element>
struct Head {
  std::int64_t query_begin, query_count, key_begin, key_count;
  std::int64_t head, head_dim;
  double scale;
  bool causal;
  kernels::Rows<Element> q, k, v;
  std::int32_t const *query_position, *key_position;
  kernels::DropoutRule dropout;

  KOKKOS_INLINE_FUNCTION Element* of(kernels::Rows<Element> const& rows, std::int64_t row) const {
    return rows[row] + head * head_dim;
  }
  KOKKOS_INLINE_FUNCTION bool sees(std::int64_t query, std::int64_t key) const {
    std::int64_t const last = query_position == nullptr ? query + (key_count - query_count)
                                                        : std::int64_t{query_position[query_begin + query]};
    return !causal || position_of(key) <= last;
  }
  KOKKOS_INLINE_FUNCTION std::int64_t position_of(std::int64_t key) const {
    return key_position == nullptr ? key : key_position[key_begin + key];
  }
  KOKKOS_INLINE_FUNCTION double dot(Element const* a, Element const* b) const {
    double sum = 0;
    for (std::int64_t i = 0; i < head_dim; ++i) {
      sum += kernels::wide<double>(a[i]) * kernels::wide<double>(b[i]);
    }
    return sum;
  }
  KOKKOS_INLINE_FUNCTION double score(std::int64_t query, std::int64_t key) const {
    return scale * dot(of(q, query_begin + query), of(k, key_begin + key));
  }
  KOKKOS_INLINE_FUNCTION double kept(std::int64_t query, std::int64_t key) const {
    std::int64_t const position = position_of(key);
    std::int64_t const group = ((dropout.first_column + head) << 20) + position / 8;
    return dropout.active ? dropout.multiplier(query_begin + query, group, position % 8) : 1.0;
  }
  /// Of the query's scores and one more, `others`.
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

/// A row times a factor.
template <class Element>
struct Term {
  double factor;
  Element const* row;
};

/// to[d] = share * to[d] + the sum of the terms 0 ≤ i < count of column d, rounded once.
template <class Element, class TermOf>
KOKKOS_INLINE_FUNCTION void sum_terms(Element* to, std::int64_t head_dim, double share, std::int64_t count,
                                      TermOf const& term_of) {
  constexpr std::int64_t columns = 32;  // at once
  for (std::int64_t begin = 0; begin < head_dim; begin += columns) {
    std::int64_t const end = head_dim - begin < columns ? head_dim : begin + columns;
    double sums[columns];
    for (std::int64_t d = begin; d < end; ++d) {
      sums[d - begin] = share > 0 ? share * kernels::wide<double>(to[d]) : 0.0;
    }
    for (std::int64_t i = 0; i < count; ++i) {
      Term<Element> const term = term_of(i);
      for (std::int64_t d = begin; term.factor != 0 && d < end; ++d) {
        sums[d - begin] += term.factor * kernels::wide<double>(term.row[d]);
      }
    }
    for (std::int64_t d = begin; d < end; ++d) {
      to[d] = kernels::narrow<Element>(sums[d - begin]);
    }
  }
}

template <class Element>
struct Call {
  kernels::Rows<Element> q, k, v;
  std::int32_t const *query_begin, *query_length, *key_begin, *key_length;
  std::int32_t const *query_position, *key_position;
  std::int64_t count, heads, head_dim;
  double scale;
  bool causal, accumulate;
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
        count(call.queries.count),
        heads(call.heads),
        head_dim(call.q.dim(1) / call.heads),
        scale(call.scale),
        causal(call.causal),
        accumulate(call.accumulate),
        dropout(call.dropout) {}

  KOKKOS_INLINE_FUNCTION Head<Element> head(std::int64_t item) const {
    std::int64_t const sequence = item / heads;
    return {query_begin[sequence],
            query_length[sequence],
            key_begin[sequence],
            key_length[sequence],
            item % heads,
            head_dim,
            scale,
            causal,
            q,
            k,
            v,
            query_position,
            key_position,
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
        Head<Element> const head = call.head(item);
        for (std::int64_t query = 0; query < head.query_count; ++query) {
          Real& statistic = statistics[head.query_begin + query][head.head];
          double const others = call.accumulate ? static_cast<double>(statistic) : -INFINITY;
          double const normalizer = head.log_sum_exp(query, others);
          double const share = others > -INFINITY ? std::exp(others - normalizer) : 0.0;
          statistic = static_cast<Real>(normalizer);
          sum_terms(head.of(out, head.query_begin + query), head.head_dim, share, head.key_count,
                    [&](std::int64_t key) {
                      double const weight = head.sees(query, key) ? std::exp(head.score(query, key) - normalizer) : 0.0;
                      return Term<Element>{weight * head.kept(query, key), head.of(head.v, head.key_begin + key)};
                    });
        }
      });
}

/// What backward reads and writes beside the call.
template <class Element>
struct BackwardRows {
  kernels::Rows<Element> output, grad_output;
  kernels::Rows<Element> grad_q, grad_k, grad_v;
  kernels::Rows<kernels::ArithmeticType<Element>> log_sum_exp;
};

/// What the pair of a query and a key contributes is these times a row.
struct PairFactors {
  double grad_output = 0;  ///< to grad_v
  double score = 0;        ///< times k to grad_q, times q to grad_k
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
  double const grad_weight = kept * head.dot(grad, head.of(head.v, head.key_begin + key));
  return {weight * kept, head.scale * weight * (grad_weight - delta)};
}

template <class Element>
void run_backward(Execution& execution, AttentionCall const& attention, BackwardRows<Element> const& rows) {
  Call<Element> const call(attention);
  double const share = call.accumulate ? 1 : 0;
  kernels::for_each(
      execution, "reference attention backward", call.count * call.heads, KOKKOS_LAMBDA(std::int64_t item) {
        Head<Element> const head = call.head(item);
        for (std::int64_t query = 0; query < head.query_count; ++query) {
          sum_terms(
              head.of(rows.grad_q, head.query_begin + query), head.head_dim, share, head.key_count,
              [&](std::int64_t key) {
                return Term<Element>{pair_factors(head, rows, query, key).score, head.of(head.k, head.key_begin + key)};
              });
        }
        for (std::int64_t key = 0; key < head.key_count; ++key) {
          std::int64_t const row = head.key_begin + key;
          sum_terms(head.of(rows.grad_k, row), head.head_dim, share, head.query_count, [&](std::int64_t query) {
            return Term<Element>{pair_factors(head, rows, query, key).score, head.of(head.q, head.query_begin + query)};
          });
          sum_terms(head.of(rows.grad_v, row), head.head_dim, share, head.query_count, [&](std::int64_t query) {
            return Term<Element>{pair_factors(head, rows, query, key).grad_output,
                                 head.of(rows.grad_output, head.query_begin + query)};
          });
        }
      });
}

class ReferenceAttention : public Attention {
 public:
  bool supports(AttentionProblem const& problem) const override {
    return problem.dtype == DType::float32 || problem.dtype == DType::float64 || problem.dtype == DType::bfloat16;
  }
  void forward(Execution& execution, AttentionCall const& call, Tensor const& output,
               Tensor const& log_sum_exp) override {
    kernels::with_floating(call.q.dtype(),
                           [&]<class Element>(Element) { run_forward<Element>(execution, call, output, log_sum_exp); });
  }
  void backward(Execution& execution, AttentionCall const& call, Tensor const& output, Tensor const& log_sum_exp,
                Tensor const& grad_output, AttentionGradients const& gradients) override {
    kernels::with_floating(call.q.dtype(), [&]<class Element>(Element) {
      BackwardRows<Element> const rows{
          kernels::rows_of<Element>(output),      kernels::rows_of<Element>(grad_output),
          kernels::rows_of<Element>(gradients.q), kernels::rows_of<Element>(gradients.k),
          kernels::rows_of<Element>(gradients.v), kernels::rows_of<kernels::ArithmeticType<Element>>(log_sum_exp)};
      run_backward<Element>(execution, call, rows);
    });
  }
};

}  // namespace

std::shared_ptr<Attention> make_reference_attention() {
  return std::make_shared<ReferenceAttention>();
}

}  // namespace heddle
