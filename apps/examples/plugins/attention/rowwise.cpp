// A plug-in: an implementation of the operation "attention" in which a work item is a row and a head.

#include <cmath>
#include <heddle/core/operations/attention.hpp>
#include <heddle/core/operations/kernel_author.hpp>
#include <heddle/core/plugins/entry.hpp>

namespace rowwise_plugin {

using heddle::AttentionCall;
using heddle::Execution;
using heddle::Tensor;
namespace kernels = heddle::kernels;

/// A token of one sequence, and a head.
struct Place {
  std::int64_t sequence, index, head;
  bool exists;  ///< the sequence has that many tokens
};

/// A call as work items see it.
template <class Element, class Real = kernels::ArithmeticType<Element>>
struct Scores {
  kernels::Rows<Element> q, k;
  std::int32_t const *query_begins, *query_lengths, *key_begins, *key_lengths;
  std::int64_t heads, head_dim, max_queries, max_keys;
  Real scale;
  bool causal;

  explicit Scores(AttentionCall const& call)
      : q(kernels::rows_of<Element>(call.q)),
        k(kernels::rows_of<Element>(call.k)),
        query_begins(call.queries.begin.data<std::int32_t>()),
        query_lengths(call.queries.length.data<std::int32_t>()),
        key_begins(call.keys.begin.data<std::int32_t>()),
        key_lengths(call.keys.length.data<std::int32_t>()),
        heads(call.heads),
        head_dim(call.q.dim(1) / call.heads),
        max_queries(call.queries.max_length),
        max_keys(call.keys.max_length),
        scale(static_cast<Real>(call.scale)),
        causal(call.mask.is(heddle::MaskKind::causal)) {}

  std::int64_t items(heddle::Sequences const& sequences) const {
    return sequences.count * sequences.max_length * heads;
  }

  KOKKOS_INLINE_FUNCTION Place place(std::int64_t item, std::int32_t const* lengths, std::int64_t max) const {
    std::int64_t const sequence = item / (max * heads);
    std::int64_t const index = item / heads % max;
    return {sequence, index, item % heads, index < lengths[sequence]};
  }
  /// The last query is at the last key; a causal query sees those at most at its own position.
  KOKKOS_INLINE_FUNCTION bool sees(std::int64_t sequence, std::int64_t query, std::int64_t key) const {
    return !causal || key <= query + key_lengths[sequence] - query_lengths[sequence];
  }
  KOKKOS_INLINE_FUNCTION Real score(std::int64_t row, std::int64_t key, std::int64_t head) const {
    Real sum = 0;
    for (std::int64_t c = head * head_dim; c < (head + 1) * head_dim; ++c) {
      sum += kernels::wide<Real>(q[row][c]) * kernels::wide<Real>(k[key][c]);
    }
    return scale * sum;
  }
  /// Calls body(row of k) for each key that the query sees.
  template <class Body>
  KOKKOS_INLINE_FUNCTION void for_each_key(Place const& query, Body const& body) const {
    for (std::int64_t key = 0; key < key_lengths[query.sequence] && sees(query.sequence, query.index, key); ++key) {
      body(key_begins[query.sequence] + key);
    }
  }
};

template <class Element, class Real = kernels::ArithmeticType<Element>>
void forward_as(Execution& execution, AttentionCall const& call, Tensor const& output, Tensor const& log_sum_exp) {
  Scores<Element> const scores(call);
  auto const v = kernels::rows_of<Element>(call.v);
  auto const out = kernels::rows_of<Element>(output);
  auto const lse = kernels::rows_of<Real>(log_sum_exp);
  kernels::for_each(
      execution, "rowwise", scores.items(call.queries), KOKKOS_LAMBDA(std::int64_t item) {
        Place const at = scores.place(item, scores.query_lengths, scores.max_queries);
        if (!at.exists) {
          return;
        }
        std::int64_t const row = scores.query_begins[at.sequence] + at.index;
        Real max = -INFINITY;
        scores.for_each_key(at, [&](std::int64_t key) { max = std::fmax(max, scores.score(row, key, at.head)); });
        Real sum = 0;
        scores.for_each_key(at, [&](std::int64_t key) { sum += std::exp(scores.score(row, key, at.head) - max); });
        lse[row][at.head] = max + std::log(sum);  // -infinity where the query sees no key
        for (std::int64_t c = at.head * scores.head_dim; c < (at.head + 1) * scores.head_dim; ++c) {
          Real value = 0;
          scores.for_each_key(at, [&](std::int64_t key) {
            value += std::exp(scores.score(row, key, at.head) - lse[row][at.head]) * kernels::wide<Real>(v[key][c]);
          });
          out[row][c] = kernels::narrow<Element>(value);
        }
      });
}

/// The values that both backward passes compute again for a query and a key that see each other: with p the weight, g
/// the output's gradient and o the output, the gradient of the score is p * (g · v - g · o).
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

struct Results {
  Tensor output, log_sum_exp, grad_output;
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

class Rowwise final : public heddle::Attention {
 public:
  bool supports(heddle::AttentionProblem const& problem) const override {
    bool const mask = problem.mask.is(heddle::MaskKind::bidirectional) || problem.mask.is(heddle::MaskKind::causal);
    bool const plain =
        problem.score == heddle::ScoreKind::dot_product && problem.own_keys() && !problem.soft_cap && !problem.state;
    return mask && plain && !problem.bias && !problem.positions && !problem.accumulate && problem.dropout_rate == 0 &&
           problem.dtype != heddle::DType::int32;
  }
  void forward(Execution& execution, AttentionCall const& call, Tensor const& output,
               Tensor const& log_sum_exp) override {
    kernels::with_floating(call.q.dtype(),
                           [&]<class Element>(Element) { forward_as<Element>(execution, call, output, log_sum_exp); });
  }
  void backward(Execution& execution, AttentionCall const& call, Tensor const& output, Tensor const& log_sum_exp,
                Tensor const& grad_output, heddle::AttentionGradients const& gradients) override {
    kernels::with_floating(call.q.dtype(), [&]<class Element>(Element) {
      backward_as<Element>(execution, call, {output, log_sum_exp, grad_output}, gradients);
    });
  }
};

void register_all(heddle::Registries& registries) {
  // Slower than the built-in ones: it runs where `[kernels] attention = "rowwise"` names it.
  registries.kernels.of<heddle::Attention>().add("rowwise", 1, std::make_shared<Rowwise>());
}

}  // namespace rowwise_plugin

HEDDLE_PLUGIN(rowwise_plugin::register_all)
