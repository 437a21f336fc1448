#pragma once

#include <heddle/core/tensor/arena.hpp>

#include "tiles.hpp"

/// The parts of scores other than inner products: additive scores, the cap and biases, forward and backward side by
/// side, for a block of queries and one of keys. Tiles of scores are [keys, queries]; their columns are filled up to
/// the next multiple of tile_columns.
namespace heddle::kernels {

/// Rows and columns of a tile of scores.
struct ScoreExtents {
  std::int64_t keys, columns;
};

/// score = cap * tanh(score / cap).
template <class Real>
KOKKOS_INLINE_FUNCTION void cap_scores(Tile<Real> scores, ScoreExtents extents, Real cap) {
  Real const inverse = 1 / cap;
  for (std::int64_t j = 0; j < extents.keys; ++j) {
    Real* const score = scores[j];
    for (std::int64_t i = 0; i < extents.columns; ++i) {
      score[i] = cap * fast_tanh(score[i] * inverse);
    }
  }
}

/// slope = the derivative of cap_scores, from its results.
template <class Real>
KOKKOS_INLINE_FUNCTION void cap_slopes(Tile<Real> capped, ScoreExtents extents, Real cap, Tile<Real> slopes) {
  Real const inverse = 1 / cap;
  for (std::int64_t j = 0; j < extents.keys; ++j) {
    Real const* const score = capped[j];
    Real* const slope = slopes[j];
    for (std::int64_t i = 0; i < extents.columns; ++i) {
      Real const tanh = score[i] * inverse;
      slope[i] = 1 - tanh * tanh;
    }
  }
}

/// scores = the function of scores, and slopes, where they are wanted, its derivatives.
template <class Real>
KOKKOS_INLINE_FUNCTION void apply_function(ScoreFunction<Real> const& function, ScoreExtents extents, Tile<Real> scores,
                                           Tile<Real> slopes) {
  for (std::int64_t j = 0; j < extents.keys; ++j) {
    function(extents.columns, scores[j], scores[j], slopes.data == nullptr ? nullptr : slopes[j]);
  }
}

/// The distances between the queries of a block and the keys of another. Distances of consecutive positions depend only
/// on the diagonal i - j + keys - 1 of query i and key j; with given positions there may be gaps.
template <class Head>
struct Distances {
  Head const& head;
  Block queries, keys;
  std::int64_t first;  ///< the distance of the first key from the first query
  bool consecutive;

  KOKKOS_INLINE_FUNCTION Distances(Head const& of_head, Block query_block, Block key_block)
      : head(of_head),
        queries(query_block),
        keys(key_block),
        first(of_head.position_of(key_block.begin) - of_head.position_of_query(query_block.begin)),
        consecutive(of_head.position_of(key_block.end() - 1) - of_head.position_of(key_block.begin) ==
                        key_block.count - 1 &&
                    of_head.position_of_query(query_block.end() - 1) - of_head.position_of_query(query_block.begin) ==
                        query_block.count - 1) {}

  KOKKOS_INLINE_FUNCTION std::int64_t diagonals() const { return queries.count + keys.count - 1; }
  /// The index among a head's biases of a diagonal's pairs, and of a pair.
  KOKKOS_INLINE_FUNCTION std::int64_t index_of(std::int64_t diagonal) const {
    return bounded(first + keys.count - 1 - diagonal);
  }
  KOKKOS_INLINE_FUNCTION std::int64_t index_of(std::int64_t key, std::int64_t query) const {
    return bounded(head.position_of(keys.begin + key) - head.position_of_query(queries.begin + query));
  }

 private:
  KOKKOS_INLINE_FUNCTION std::int64_t bounded(std::int64_t distance) const {
    std::int64_t const reach = head.view.bias_reach;
    return reach + (distance < -reach ? -reach : (distance > reach ? reach : distance));
  }
};

/// Room for every diagonal of two blocks, columns beyond the queries included.
constexpr std::int64_t max_diagonals = 2 * attention_block + tile_columns;

/// Scores += unit * the head's biases.
template <class Head, class Real = typename Head::Real>
KOKKOS_INLINE_FUNCTION void add_bias(Head const& head, Block queries, Block keys, Real unit, Tile<Real> scores) {
  Distances<Head> const distances(head, queries, keys);
  Real const* const bias = head.view.bias[head.head];
  if (distances.consecutive) {
    Real by_diagonal[max_diagonals] = {};
    for (std::int64_t t = 0; t < distances.diagonals(); ++t) {
      by_diagonal[t] = unit * bias[distances.index_of(t)];
    }
    for (std::int64_t j = 0; j < keys.count; ++j) {
      Real const* const own = by_diagonal + keys.count - 1 - j;
      for (std::int64_t i = 0; i < round_up(queries.count, tile_columns); ++i) {
        scores[j][i] += own[i];
      }
    }
    return;
  }
  for (std::int64_t j = 0; j < keys.count; ++j) {
    for (std::int64_t i = 0; i < queries.count; ++i) {
      scores[j][i] += unit * bias[distances.index_of(j, i)];
    }
  }
}

/// sums [2 reach + 1] += the scores' gradients at each distance.
template <class Head, class Real = typename Head::Real>
KOKKOS_INLINE_FUNCTION void add_bias_gradient(Head const& head, Block queries, Block keys, Tile<Real> grad_scores,
                                              Real* sums) {
  Distances<Head> const distances(head, queries, keys);
  if (distances.consecutive) {
    constexpr std::int64_t copies = 4;  // consecutive keys add to other memory, so that no addition waits for another
    Real by_diagonal[copies][max_diagonals] = {};
    for (std::int64_t j = 0; j < keys.count; ++j) {
      Real* const own = by_diagonal[j % copies] + keys.count - 1 - j;
      for (std::int64_t i = 0; i < queries.count; ++i) {
        own[i] += grad_scores[j][i];
      }
    }
    for (std::int64_t t = 0; t < distances.diagonals(); ++t) {
      sums[distances.index_of(t)] += by_diagonal[0][t] + by_diagonal[1][t] + by_diagonal[2][t] + by_diagonal[3][t];
    }
    return;
  }
  for (std::int64_t j = 0; j < keys.count; ++j) {
    for (std::int64_t i = 0; i < queries.count; ++i) {
      sums[distances.index_of(j, i)] += grad_scores[j][i];
    }
  }
}

/// The order of the columns in tiles [tokens, head_dim]: as in memory, unless a kernel has its own.
struct PlainOrder {
  KOKKOS_INLINE_FUNCTION static constexpr std::int64_t column(std::int64_t d) { return d; }
};

/// The operands of additive scores: weight [head_dim], and their scale in the unit of the scores.
template <class Real>
struct AdditiveOperands {
  Tile<Real> q_transposed;  ///< [head_dim, queries]
  Tile<Real> k;             ///< [keys, head_dim], columns in Order
  Real const* weight;
  Real scale;
  std::int64_t head_dim;
};

/// The operands of a head, in units of which `unit` are 1.
template <class Head, class Real = typename Head::Real>
KOKKOS_INLINE_FUNCTION AdditiveOperands<Real> additive_operands(Head const& head, Tile<Real> q_transposed, Tile<Real> k,
                                                                Real unit) {
  return {q_transposed, k, head.view.score_weight[head.head], unit * head.view.scale, head.view.head_dim};
}

/// scores = scale * weight · tanh(q + k).
template <class Order, class Real>
KOKKOS_INLINE_FUNCTION void additive_scores(AdditiveOperands<Real> const& operands, ScoreExtents extents,
                                            Tile<Real> scores) {
  for (std::int64_t j = 0; j < extents.keys; ++j) {
    Real* const score = scores[j];
    for (std::int64_t i = 0; i < extents.columns; ++i) {
      score[i] = 0;
    }
    for (std::int64_t d = 0; d < operands.head_dim; ++d) {
      Real const key = operands.k[j][Order::column(d)];
      Real const weight = operands.scale * operands.weight[d];
      Real const* const query = operands.q_transposed[d];
      for (std::int64_t i = 0; i < extents.columns; ++i) {
        score[i] += weight * fast_tanh(query[i] + key);
      }
    }
  }
}

/// Gradients of additive scores, all +=.
template <class Real>
struct AdditiveGradients {
  Tile<Real> q, k;  ///< [queries, head_dim] and [keys, head_dim], columns in Order
  Real* weight;     ///< [head_dim]
};

template <class Order, class Real>
KOKKOS_INLINE_FUNCTION void add_additive_gradients(AdditiveOperands<Real> const& operands, ScoreExtents extents,
                                                   Tile<Real> grad_scores, std::int64_t queries,
                                                   AdditiveGradients<Real> const& gradients) {
  for (std::int64_t d = 0; d < operands.head_dim; ++d) {
    std::int64_t const column = Order::column(d);
    Real const weight = operands.scale * operands.weight[d];
    Real const* const query = operands.q_transposed[d];
    Real grad_query[attention_block] = {};
    Real grad_weight = 0;
    for (std::int64_t j = 0; j < extents.keys; ++j) {
      Real const key = operands.k[j][column];
      Real const* const grad = grad_scores[j];
      Real grad_key = 0;
      for (std::int64_t i = 0; i < extents.columns; ++i) {
        Real const tanh = fast_tanh(query[i] + key);
        Real const grad_sum = grad[i] * (1 - tanh * tanh);
        grad_weight += grad[i] * tanh;
        grad_query[i] += grad_sum;
        grad_key += grad_sum;
      }
      gradients.k[j][column] += weight * grad_key;
    }
    for (std::int64_t i = 0; i < queries; ++i) {
      gradients.q[i][column] += weight * grad_query[i];
    }
    gradients.weight[d] += operands.scale * grad_weight;
  }
}

/// Sums over the pairs of one head of one sequence, for the gradient of a parameter that the sequences share
/// [heads, columns]. They are added in the order of the sequences, so that the result does not depend on threads.
template <class Real>
struct SharedGradient {
  Rows<Real> partial{};  ///< [sequences * heads, columns]; unset where no gradient is wanted
  std::int64_t columns = 0;

  /// Takes memory from `scratch` for a call of `sequences` sequences.
  SharedGradient(Arena& scratch, Tensor const& gradient, std::int64_t sequences) {
    if (!gradient.empty()) {
      columns = gradient.dim(1);
      partial = rows_of<Real>(scratch.allocate(gradient.dtype(), {sequences * gradient.dim(0), columns}));
    }
  }

  /// The sums of a head of a sequence, null where no gradient is wanted; `begin` sets them to zero.
  KOKKOS_INLINE_FUNCTION Real* of(std::int64_t sequence_and_head) const {
    return partial ? partial[sequence_and_head] : nullptr;
  }
  KOKKOS_INLINE_FUNCTION void begin(std::int64_t sequence_and_head) const {
    Real* const sums = of(sequence_and_head);
    for (std::int64_t i = 0; i < columns; ++i) {
      sums[i] = 0;
    }
  }

  /// gradient += the sums of all sequences.
  void add_to(Execution& execution, Tensor const& gradient, std::int64_t sequences) const {
    SharedGradient const sums = *this;
    auto const rows = rows_of<Real>(gradient);
    std::int64_t const heads = gradient.empty() ? 0 : gradient.dim(0);
    for_each(
        execution, "sum of gradients over sequences", heads * columns, KOKKOS_LAMBDA(std::int64_t item) {
          std::int64_t const head = item / sums.columns;
          std::int64_t const column = item % sums.columns;
          Real sum = 0;
          for (std::int64_t sequence = 0; sequence < sequences; ++sequence) {
            sum += sums.partial[sequence * heads + head][column];
          }
          rows[head][column] += sum;
        });
  }
};

/// The gradients of a call's bias and score_weight.
template <class Real>
struct SharedGradients {
  SharedGradient<Real> bias, score_weight;

  SharedGradients(Arena& scratch, AttentionGradients const& gradients, std::int64_t sequences)
      : bias(scratch, gradients.bias, sequences), score_weight(scratch, gradients.score_weight, sequences) {}
  void add_to(Execution& execution, AttentionGradients const& gradients, std::int64_t sequences) const {
    bias.add_to(execution, gradients.bias, sequences);
    score_weight.add_to(execution, gradients.score_weight, sequences);
  }
};

/// The tensors of Attention::backward and the sums for the gradients of parameters.
template <class Element>
struct AllBackwardRows : BackwardRows<Element> {
  SharedGradients<ArithmeticType<Element>> shared;
};

}  // namespace heddle::kernels
