#pragma once

#include <cstdint>
#include <heddle/core/operations/attention.hpp>
#include <heddle/core/operations/kernel_author.hpp>

/// The header for authors of attention kernels of the plain kind: full or causal masks, and inner products as scores.
namespace heddle::kernels {

/// Whether a call has a full or causal mask, inner products as scores and keys for each head, without cap, bias, given
/// positions, earlier results and state. It may have dropout.
inline bool is_plain(AttentionProblem const& problem) {
  bool const mask = problem.mask.is(MaskKind::bidirectional) || problem.mask.is(MaskKind::causal);
  bool const more = problem.soft_cap || problem.bias || problem.positions || problem.accumulate || problem.state;
  return mask && problem.score == ScoreKind::dot_product && problem.own_keys() && !more;
}

/// One head of one sequence of a plain call. Queries and keys are counted from the sequence's first.
template <class Real>
struct SequenceHead {
  std::int64_t head, columns;  ///< `columns`: of a head
  std::int64_t first_query, queries, first_key, keys;
  Real scale;
  bool causal;

  /// The head's columns of a query, in q or in a matrix of its shape, and of a key, in k, v or a matrix of their shape.
  KOKKOS_INLINE_FUNCTION Real* query(Rows<Real> const& rows, std::int64_t index) const {
    return rows[first_query + index] + head * columns;
  }
  KOKKOS_INLINE_FUNCTION Real* key(Rows<Real> const& rows, std::int64_t index) const {
    return rows[first_key + index] + head * columns;
  }
  /// The query's element of log_sum_exp.
  KOKKOS_INLINE_FUNCTION Real& statistic(Rows<Real> const& rows, std::int64_t index) const {
    return rows[first_query + index][head];
  }
  /// The query sees the keys below this one. The last query is at the last key.
  KOKKOS_INLINE_FUNCTION std::int64_t seen(std::int64_t query) const {
    std::int64_t const end = causal ? query + 1 + keys - queries : keys;
    return end < 0 ? 0 : end;
  }

  KOKKOS_INLINE_FUNCTION Real score(Real const* q, Real const* k) const { return scale * dot(q, k); }
  /// a · b, to += factor * from and to *= factor, over the head's columns. A factor of 0 clears NaN, too.
  KOKKOS_INLINE_FUNCTION Real dot(Real const* a, Real const* b) const {
    Real sum = 0;
    for (std::int64_t c = 0; c < columns; ++c) {
      sum += a[c] * b[c];
    }
    return sum;
  }
  KOKKOS_INLINE_FUNCTION void add(Real* to, Real factor, Real const* from) const {
    for (std::int64_t c = 0; c < columns; ++c) {
      to[c] += factor * from[c];
    }
  }
  KOKKOS_INLINE_FUNCTION void multiply(Real* to, Real factor) const {
    for (std::int64_t c = 0; c < columns; ++c) {
      to[c] = factor == 0 ? 0 : factor * to[c];
    }
  }
  /// Sets the head's columns of all keys in these matrices to 0.
  template <class... Matrices>
  KOKKOS_INLINE_FUNCTION void clear_keys(Matrices const&... matrices) const {
    for (std::int64_t index = 0; index < keys; ++index) {
      (multiply(key(matrices, index), 0), ...);
    }
  }
};

/// Calls `body(head)`, which computes in Real, for each head of each sequence, in parallel.
template <class Real, class Body>
void for_each_head(Execution& execution, char const* name, AttentionCall const& call, Body const& body) {
  auto const* const query_begin = call.queries.begin.data<std::int32_t>();
  auto const* const query_length = call.queries.length.data<std::int32_t>();
  auto const* const key_begin = call.keys.begin.data<std::int32_t>();
  auto const* const key_length = call.keys.length.data<std::int32_t>();
  std::int64_t const heads = call.heads;
  std::int64_t const columns = call.q.dim(1) / heads;
  auto const scale = static_cast<Real>(call.scale);
  bool const causal = call.mask.is(MaskKind::causal);
  for_each(
      execution, name, call.queries.count * heads, KOKKOS_LAMBDA(std::int64_t item) {
        std::int64_t const sequence = item / heads;
        body(SequenceHead<Real>{item % heads, columns, query_begin[sequence], query_length[sequence],
                                key_begin[sequence], key_length[sequence], scale, causal});
      });
}

}  // namespace heddle::kernels
