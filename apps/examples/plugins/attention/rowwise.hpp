#pragma once

#include <heddle/core/operations/attention.hpp>
#include <heddle/core/operations/kernel_author.hpp>

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

struct Results {
  Tensor output, log_sum_exp, grad_output;
};
void backward(Execution& execution, AttentionCall const& call, Results const& results,
              heddle::AttentionGradients const& gradients);

}  // namespace rowwise_plugin
