#include "factories.hpp"
#include "kernel_parts.hpp"

namespace heddle {
namespace {

/// One head of one sequence, with the formulas as they stand in a textbook: scores are computed again wherever needed.
template <class Real>
struct Head {
  std::int64_t query_begin, query_count, key_begin, key_count;
  std::int64_t head, head_dim;
  double scale;
  bool causal;
  parts::Rows<Real> q, k, v;
  std::int32_t const *query_position, *key_position;
  parts::DropoutRule dropout;

  KOKKOS_INLINE_FUNCTION Real* of(parts::Rows<Real> const& rows, std::int64_t row) const {
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
  KOKKOS_INLINE_FUNCTION double dot(Real const* a, Real const* b) const {
    double sum = 0;
    for (std::int64_t i = 0; i < head_dim; ++i) {
      sum += static_cast<double>(a[i]) * b[i];
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

template <class Real>
struct Call {
  parts::Rows<Real> q, k, v;
  std::int32_t const *query_begin, *query_length, *key_begin, *key_length;
  std::int32_t const *query_position, *key_position;
  std::int64_t count, heads, head_dim;
  double scale;
  bool causal, accumulate;
  parts::DropoutRule dropout;

  explicit Call(AttentionCall const& call)
      : q(parts::rows_of<Real>(call.q)),
        k(parts::rows_of<Real>(call.k)),
        v(parts::rows_of<Real>(call.v)),
        query_begin(call.queries.begin.data<std::int32_t>()),
        query_length(call.queries.length.data<std::int32_t>()),
        key_begin(call.keys.begin.data<std::int32_t>()),
        key_length(call.keys.length.data<std::int32_t>()),
        query_position(parts::rows_of<std::int32_t>(call.query_position).data),
        key_position(parts::rows_of<std::int32_t>(call.key_position).data),
        count(call.queries.count),
        heads(call.heads),
        head_dim(call.q.dim(1) / call.heads),
        scale(call.scale),
        causal(call.causal),
        accumulate(call.accumulate),
        dropout(call.dropout) {}

  KOKKOS_INLINE_FUNCTION Head<Real> head(std::int64_t item) const {
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

template <class Real>
void run_forward(Execution& execution, AttentionCall const& attention, Tensor const& output,
                 Tensor const& log_sum_exp) {
  Call<Real> const call(attention);
  auto const out = parts::rows_of<Real>(output);
  auto const statistics = parts::rows_of<Real>(log_sum_exp);
  parts::for_each(
      execution, "reference attention forward", call.count * call.heads, KOKKOS_LAMBDA(std::int64_t item) {
        Head<Real> const head = call.head(item);
        for (std::int64_t query = 0; query < head.query_count; ++query) {
          Real& statistic = statistics[head.query_begin + query][head.head];
          double const others = call.accumulate ? static_cast<double>(statistic) : -INFINITY;
          double const normalizer = head.log_sum_exp(query, others);
          double const share = others > -INFINITY ? std::exp(others - normalizer) : 0.0;
          statistic = static_cast<Real>(normalizer);
          Real* const to = head.of(out, head.query_begin + query);
          for (std::int64_t d = 0; d < head.head_dim; ++d) {
            to[d] = share > 0 ? static_cast<Real>(share * to[d]) : Real{0};
          }
          for (std::int64_t key = 0; key < head.key_count; ++key) {
            double const weight = head.sees(query, key) ? std::exp(head.score(query, key) - normalizer) : 0.0;
            double const kept = head.kept(query, key);
            for (std::int64_t d = 0; d < head.head_dim; ++d) {
              to[d] += static_cast<Real>(weight * kept * head.of(head.v, head.key_begin + key)[d]);
            }
          }
        }
      });
}

template <class Real>
struct Gradients {
  parts::Rows<Real> q, k, v;
};

/// Adds what the pair of a query and a key contributes. With weight p, kept multiplier m, dp = grad_output · v and
/// delta = grad_output · output: dv += p m grad_output, d(score) = p (m dp - delta).
template <class Real>
KOKKOS_INLINE_FUNCTION void add_pair(Head<Real> const& head, Gradients<Real> const& gradients, std::int64_t query,
                                     std::int64_t key, double normalizer, double delta, Real const* grad_output) {
  std::int64_t const query_row = head.query_begin + query;
  std::int64_t const key_row = head.key_begin + key;
  double const weight = std::exp(head.score(query, key) - normalizer);
  double const kept = head.kept(query, key);
  double const grad_weight = kept * head.dot(grad_output, head.of(head.v, key_row));
  double const grad_score = head.scale * weight * (grad_weight - delta);
  for (std::int64_t d = 0; d < head.head_dim; ++d) {
    head.of(gradients.q, query_row)[d] += static_cast<Real>(grad_score * head.of(head.k, key_row)[d]);
    head.of(gradients.k, key_row)[d] += static_cast<Real>(grad_score * head.of(head.q, query_row)[d]);
    head.of(gradients.v, key_row)[d] += static_cast<Real>(weight * kept * grad_output[d]);
  }
}

template <class Real>
void run_backward(Execution& execution, AttentionCall const& attention, Tensor const& output, Tensor const& log_sum_exp,
                  Tensor const& grad_output, Gradients<Real> const& gradients) {
  Call<Real> const call(attention);
  auto const out = parts::rows_of<Real>(output);
  auto const statistics = parts::rows_of<Real>(log_sum_exp);
  auto const grad_out = parts::rows_of<Real>(grad_output);
  parts::for_each(
      execution, "reference attention backward", call.count * call.heads, KOKKOS_LAMBDA(std::int64_t item) {
        Head<Real> const head = call.head(item);
        for (std::int64_t d = 0; !call.accumulate && d < head.head_dim; ++d) {
          for (std::int64_t query = 0; query < head.query_count; ++query) {
            head.of(gradients.q, head.query_begin + query)[d] = 0;
          }
          for (std::int64_t key = 0; key < head.key_count; ++key) {
            head.of(gradients.k, head.key_begin + key)[d] = 0;
            head.of(gradients.v, head.key_begin + key)[d] = 0;
          }
        }
        for (std::int64_t query = 0; query < head.query_count; ++query) {
          std::int64_t const row = head.query_begin + query;
          Real const* const grad = head.of(grad_out, row);
          double const delta = head.dot(grad, head.of(out, row));
          for (std::int64_t key = 0; key < head.key_count; ++key) {
            if (head.sees(query, key)) {
              add_pair<Real>(head, gradients, query, key, statistics[row][head.head], delta, grad);
            }
          }
        }
      });
}

class ReferenceAttention : public Attention {
 public:
  bool supports(AttentionProblem const& problem) const override {
    return problem.dtype == DType::float32 || problem.dtype == DType::float64;
  }
  void forward(Execution& execution, AttentionCall const& call, Tensor const& output,
               Tensor const& log_sum_exp) override {
    parts::with_real(call.q.dtype(),
                     [&](auto real) { run_forward<decltype(real)>(execution, call, output, log_sum_exp); });
  }
  void backward(Execution& execution, AttentionCall const& call, Tensor const& output, Tensor const& log_sum_exp,
                Tensor const& grad_output, AttentionGradients const& gradients) override {
    parts::with_real(call.q.dtype(), [&](auto real) {
      using Real = decltype(real);
      Gradients<Real> const to{parts::rows_of<Real>(gradients.q), parts::rows_of<Real>(gradients.k),
                               parts::rows_of<Real>(gradients.v)};
      run_backward<Real>(execution, call, output, log_sum_exp, grad_output, to);
    });
  }
};

}  // namespace

std::shared_ptr<Attention> make_reference_attention() {
  return std::make_shared<ReferenceAttention>();
}

}  // namespace heddle
