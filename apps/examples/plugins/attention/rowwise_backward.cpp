#include <cmath>

#include "rowwise.hpp"

namespace rowwise_plugin {
namespace {

/// The values that both passes compute again for a query and a key that see each other: with p the weight, g the
/// output's gradient and o the output, the gradient of the score is p * (g · v - g · o).
template <class Element, class Real = kernels::ArithmeticType<Element>>
struct Pair {
  Scores<Element> scores;
  kernels::Rows<Element> v, out, grad;
  kernels::Rows<Real> lse;

  KOKKOS_INLINE_FUNCTION Real weight(std::int64_t row, std::int64_t key, std::int64_t head) const {
    return std::exp(scores.score(row, key, head) - lse[row][head]);
  }
  KOKKOS_INLINE_FUNCTION Real grad_score(std::int64_t row, std::int64_t key, std::int64_t head) const {
    Real sum = 0;
    for (std::int64_t c = head * scores.head_dim; c < (head + 1) * scores.head_dim; ++c) {
      sum += kernels::wide<Real>(grad[row][c]) * (kernels::wide<Real>(v[key][c]) - kernels::wide<Real>(out[row][c]));
    }
    return weight(row, key, head) * sum;
  }
};

template <class Element, class Real = kernels::ArithmeticType<Element>>
void backward_as(Execution& execution, AttentionCall const& call, Results const& results,
                 heddle::AttentionGradients const& gradients) {
  Scores<Element> const scores(call);
  Pair<Element> const pair{scores, kernels::rows_of<Element>(call.v), kernels::rows_of<Element>(results.output),
                           kernels::rows_of<Element>(results.grad_output), kernels::rows_of<Real>(results.log_sum_exp)};
  auto const grad_q = kernels::rows_of<Element>(gradients.q);
  auto const grad_k = kernels::rows_of<Element>(gradients.k);
  auto const grad_v = kernels::rows_of<Element>(gradients.v);
  kernels::for_each(
      execution, "rowwise: gradient of q", scores.items(call.queries), KOKKOS_LAMBDA(std::int64_t item) {
        Place const at = scores.place(item, scores.query_lengths, scores.max_queries);
        std::int64_t const row = scores.query_begins[at.sequence] + at.index;
        for (std::int64_t c = at.head * scores.head_dim; at.exists && c < (at.head + 1) * scores.head_dim; ++c) {
          Real sum = 0;
          scores.for_each_key(at, [&](std::int64_t key) {
            sum += pair.grad_score(row, key, at.head) * kernels::wide<Real>(scores.k[key][c]);
          });
          grad_q[row][c] = kernels::narrow<Element>(scores.scale * sum);
        }
      });
  kernels::for_each(
      execution, "rowwise: gradients of k and v", scores.items(call.keys), KOKKOS_LAMBDA(std::int64_t item) {
        Place const at = scores.place(item, scores.key_lengths, scores.max_keys);
        std::int64_t const key = scores.key_begins[at.sequence] + at.index;
        for (std::int64_t c = at.head * scores.head_dim; at.exists && c < (at.head + 1) * scores.head_dim; ++c) {
          Real of_k = 0;
          Real of_v = 0;
          for (std::int64_t query = 0; query < scores.query_lengths[at.sequence]; ++query) {
            std::int64_t const row = scores.query_begins[at.sequence] + query;
            if (scores.sees(at.sequence, query, at.index)) {
              of_k += pair.grad_score(row, key, at.head) * kernels::wide<Real>(scores.q[row][c]);
              of_v += pair.weight(row, key, at.head) * kernels::wide<Real>(pair.grad[row][c]);
            }
          }
          grad_k[key][c] = kernels::narrow<Element>(scores.scale * of_k);
          grad_v[key][c] = kernels::narrow<Element>(of_v);
        }
      });
}

}  // namespace

void backward(Execution& execution, AttentionCall const& call, Results const& results,
              heddle::AttentionGradients const& gradients) {
  kernels::with_floating(call.q.dtype(),
                         [&]<class Element>(Element) { backward_as<Element>(execution, call, results, gradients); });
}

}  // namespace rowwise_plugin
