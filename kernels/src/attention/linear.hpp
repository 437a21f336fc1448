#pragma once

#include <heddle/core/tensor/arena.hpp>

#include "tiles.hpp"

/// Linear attention (Katharopoulos et al. 2020): a weight is the product of features φ of a query and a key, so that
/// the keys that a query sees enter through one sum, S = Σ φ(k) (v, 1)ᵀ, [head_dim, head_dim + 1]; its last column
/// gives the normaliser. Queries pass in blocks: keys that the whole block sees are in S, others meet it as in a tile
/// of scores. Time is linear in the number of tokens, also with a causal mask.
namespace heddle::kernels {

/// φ(x) = elu(x) + 1.
template <class Real>
KOKKOS_INLINE_FUNCTION Real feature(Real x) {
  return x > 0 ? x + 1 : exp_of_negative(x < 0 ? x : Real{0});
}
/// φ'(x) from φ(x).
template <class Real>
KOKKOS_INLINE_FUNCTION Real feature_slope(Real feature) {
  return feature > 1 ? Real{1} : feature;
}

template <class Real>
KOKKOS_INLINE_FUNCTION void clear(Tile<Real> tile, std::int64_t rows) {
  for (std::int64_t i = 0; i < rows * tile.stride; ++i) {
    tile.data[i] = 0;
  }
}

/// to [columns, rows] = from [rows, columns].
template <class Real>
KOKKOS_INLINE_FUNCTION void transpose_tile(Tile<Real> from, std::int64_t rows, std::int64_t columns, Tile<Real> to) {
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      to[column][row] = from[row][column];
    }
  }
}

/// The work on the heads of one sequence that share a head of keys. Tiles with one column more than head_dim have
/// `wide_` columns.
template <class Element>
class LinearHeads {
 public:
  using Head = AttentionHead<Element>;
  using Real = typename Head::Real;
  static constexpr std::int64_t block = attention_block;

  KOKKOS_INLINE_FUNCTION LinearHeads(Head const& first, Scratch<Real> scratch)
      : first_(first),
        depth_(first.view.head_dim),
        stride_(round_up(depth_, tile_columns)),
        wide_(round_up(depth_ + 1, tile_columns)),
        queries_(scratch.tile(block, stride_)),
        keys_(scratch.tile(block, stride_)),
        values_(scratch.tile(block, wide_)),
        products_(scratch.tile(block, wide_)),
        grads_(scratch.tile(block, wide_)),
        transposed_(scratch.tile(wide_, block)),
        grads_transposed_(scratch.tile(wide_, block)),
        weights_(scratch.tile(block, block)),
        grad_weights_(scratch.tile(block, block)),
        grad_keys_(scratch.tile(block, stride_)),
        sum_(scratch.tile(stride_, wide_)),
        sum_transposed_(scratch.tile(wide_, wide_)) {}

  static std::int64_t scratch_elements(std::int64_t head_dim) {
    std::int64_t const wide = round_up(head_dim + 1, tile_columns);
    return block * (8 * wide + 2 * block) + 2 * wide * wide;
  }

  /// Attention::forward; `state` is this key head's, or null.
  KOKKOS_INLINE_FUNCTION void forward(Rows<Element> output, Rows<Real> log_sum_exp, Real* state) {
    load_state(state);
    std::int64_t done = 0;  // keys in the sum
    if (!causal()) {
      done = add_keys(Sum::plain, 0, first_.keys);
    }
    store_state(state);
    for (std::int64_t begin = 0; begin < first_.queries; begin += block) {
      Block const queries = block_at(begin, first_.queries);
      Block const visible = first_.visible_keys(queries);
      if (causal()) {
        done = add_keys(Sum::plain, done, keys_seen_by_all(queries));
      }
      for (std::int64_t i = 0; i < first_.view.sharing && (!first_.view.accumulate || visible.count > 0); ++i) {
        forward_block(first_.neighbour(i), queries, {done, visible.end() - done}, output, log_sum_exp);
      }
    }
  }

  KOKKOS_INLINE_FUNCTION void backward(BackwardRows<Element> const& rows) {
    clear(sum_transposed_, wide_);
    std::int64_t done = causal() ? 0 : add_keys(Sum::transposed, 0, first_.keys);
    for (std::int64_t begin = 0; begin < first_.queries; begin += block) {
      Block const queries = block_at(begin, first_.queries);
      if (causal()) {
        done = add_keys(Sum::transposed, done, keys_seen_by_all(queries));
      }
      for (std::int64_t i = 0; i < first_.view.sharing; ++i) {
        backward_queries(first_.neighbour(i), queries, {done, first_.visible_keys(queries).end() - done}, rows);
      }
    }
    clear(sum_, stride_);
    done = first_.queries;  // queries from here on are in the sum
    for (std::int64_t begin = (first_.keys - 1) / block * block; first_.keys > 0 && begin >= 0; begin -= block) {
      Block const keys = block_at(begin, first_.keys);
      Block const all{0, first_.queries};
      std::int64_t const first_to_see = causal() ? first_.seeing(begin, all).range.begin : 0;
      std::int64_t const first_to_see_all = causal() ? first_.seeing(keys.end() - 1, all).range.begin : 0;
      add_queries(first_to_see_all, done, rows);
      done = first_to_see_all;
      backward_keys(keys, {first_to_see, first_to_see_all - first_to_see}, rows);
    }
  }

 private:
  KOKKOS_INLINE_FUNCTION bool causal() const { return first_.view.mask.is(MaskKind::causal); }
  /// The number of keys that every query of the block sees.
  KOKKOS_INLINE_FUNCTION std::int64_t keys_seen_by_all(Block queries) const {
    return first_.visible_keys({queries.begin, 1}).end();
  }

  KOKKOS_INLINE_FUNCTION void load_state(Real const* state) {
    clear(sum_, stride_);
    for (std::int64_t d = 0; state != nullptr && d < depth_; ++d) {
      for (std::int64_t column = 0; column <= depth_; ++column) {
        sum_[d][column] = state[d * (depth_ + 1) + column];
      }
    }
  }
  KOKKOS_INLINE_FUNCTION void store_state(Real* state) const {
    for (std::int64_t d = 0; state != nullptr && d < depth_; ++d) {
      for (std::int64_t column = 0; column <= depth_; ++column) {
        state[d * (depth_ + 1) + column] = sum_[d][column];
      }
    }
  }

  KOKKOS_INLINE_FUNCTION void load_features(Head const& head, Rows<Element> const& rows, std::int64_t first,
                                            std::int64_t count, Tile<Real> tile) const {
    head.load(rows, first, count, tile);
    for (std::int64_t i = 0; i < count; ++i) {
      for (std::int64_t d = 0; d < depth_; ++d) {
        tile[i][d] = feature(tile[i][d]);
      }
    }
  }
  KOKKOS_INLINE_FUNCTION void load_keys(Block keys) {
    std::int64_t const row = first_.key_row + keys.begin;
    load_features(first_, first_.of_keys(first_.view.k), row, keys.count, keys_);
    first_.load(first_.of_keys(first_.view.v), row, keys.count, values_);
    for (std::int64_t j = 0; j < keys.count; ++j) {
      values_[j][depth_] = 1;
    }
  }
  /// grads_ [queries, head_dim + 1] = (grad_output, -delta) / normaliser, delta being grad_output · output: its product
  /// with (v, 1) is the gradient of a weight.
  KOKKOS_INLINE_FUNCTION void load_grads(Head const& head, Block queries, BackwardRows<Element> const& rows) {
    std::int64_t const row = head.query_row + queries.begin;
    head.load(rows.grad_output, row, queries.count, grads_);
    for (std::int64_t i = 0; i < queries.count; ++i) {
      Element const* const output = head.at(rows.output, row + i);
      Real const normalizer = rows.log_sum_exp[row + i][head.head];
      Real const inverse = normalizer == -std::numeric_limits<Real>::infinity() ? Real{0} : fast_exp(-normalizer);
      Real delta = 0;
      for (std::int64_t d = 0; d < depth_; ++d) {
        delta += grads_[i][d] * static_cast<Real>(output[d]);
        grads_[i][d] *= inverse;
      }
      grads_[i][depth_] = -delta * inverse;
    }
  }

  enum class Sum : bool { plain, transposed };
  /// Adds the keys from `begin` to `end` to sum_ or sum_transposed_; returns the larger of the two.
  KOKKOS_INLINE_FUNCTION std::int64_t add_keys(Sum sum, std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin; at < end; at += block) {
      Block const keys = block_at(at, end);
      load_keys(keys);
      if (sum == Sum::plain) {
        multiply<true>(keys_.transposed(), values_, sum_, {depth_, depth_ + 1, keys.count});
      } else {
        multiply<true>(values_.transposed(), keys_, sum_transposed_, {depth_ + 1, depth_, keys.count});
      }
    }
    return begin < end ? end : begin;
  }
  /// Adds φ(q) gradsᵀ of the queries from `begin` to `end`, of all heads that share the keys.
  KOKKOS_INLINE_FUNCTION void add_queries(std::int64_t begin, std::int64_t end, BackwardRows<Element> const& rows) {
    for (std::int64_t at = begin; at < end; at += block) {
      Block const queries = block_at(at, end);
      for (std::int64_t i = 0; i < first_.view.sharing; ++i) {
        load_queries(first_.neighbour(i), queries, rows);
        multiply<true>(queries_.transposed(), grads_, sum_, {depth_, depth_ + 1, queries.count});
      }
    }
  }
  KOKKOS_INLINE_FUNCTION void load_queries(Head const& head, Block queries, BackwardRows<Element> const& rows) {
    load_features(head, head.view.q, head.query_row + queries.begin, queries.count, queries_);
    load_grads(head, queries, rows);
  }

  /// tile [keys, queries] = 0 where the query does not see the key.
  KOKKOS_INLINE_FUNCTION void drop_unseen(Block queries, Block keys, Tile<Real> tile) const {
    for (std::int64_t j = 0; j < keys.count; ++j) {
      auto const seeing = first_.seeing(keys.begin + j, queries);
      for (std::int64_t i = 0; i < queries.count; ++i) {
        tile[j][i] = seeing.has(i) ? tile[j][i] : Real{0};
      }
    }
  }

  /// `rest`: the keys that only some of the queries see.
  KOKKOS_INLINE_FUNCTION void forward_block(Head const& head, Block queries, Block rest, Rows<Element> output,
                                            Rows<Real> log_sum_exp) {
    std::int64_t const row = head.query_row + queries.begin;
    load_features(head, head.view.q, row, queries.count, queries_);
    multiply<false>(queries_.plain(), sum_, products_, {queries.count, depth_ + 1, depth_});
    transpose_tile(queries_, round_up(queries.count, tile_columns), depth_, transposed_);
    for (std::int64_t at = rest.begin; at < rest.end(); at += block) {
      Block const keys = block_at(at, rest.end());
      load_keys(keys);
      multiply<false>(keys_.plain(), transposed_, weights_, {keys.count, queries.count, depth_});
      drop_unseen(queries, keys, weights_);
      multiply<true>(weights_.transposed(), values_, products_, {queries.count, depth_ + 1, keys.count});
    }
    for (std::int64_t i = 0; i < queries.count; ++i) {
      Element* const to = head.at(output, row + i);
      Real& statistic = log_sum_exp[row + i][head.head];
      Real const before = head.view.accumulate ? std::exp(statistic) : Real{0};
      Real const normalizer = products_[i][depth_] + before;
      Real const inverse = normalizer > 0 ? 1 / normalizer : Real{0};
      for (std::int64_t d = 0; d < depth_; ++d) {
        Real const old = before > 0 ? before * static_cast<Real>(to[d]) : Real{0};
        to[d] = static_cast<Element>((products_[i][d] + old) * inverse);
      }
      statistic = normalizer > 0 ? std::log(normalizer) : -std::numeric_limits<Real>::infinity();
    }
  }

  KOKKOS_INLINE_FUNCTION void backward_queries(Head const& head, Block queries, Block rest,
                                               BackwardRows<Element> const& rows) {
    load_queries(head, queries, rows);
    multiply<false>(grads_.plain(), sum_transposed_, products_, {queries.count, depth_, depth_ + 1});
    transpose_tile(grads_, round_up(queries.count, tile_columns), depth_ + 1, grads_transposed_);
    for (std::int64_t at = rest.begin; at < rest.end(); at += block) {
      Block const keys = block_at(at, rest.end());
      load_keys(keys);
      multiply<false>(values_.plain(), grads_transposed_, weights_, {keys.count, queries.count, depth_ + 1});
      drop_unseen(queries, keys, weights_);
      multiply<true>(weights_.transposed(), keys_, products_, {queries.count, depth_, keys.count});
    }
    multiply_by_slopes(queries_, queries.count, products_);
    head.store(products_, rows.grad_q, head.query_row + queries.begin, queries.count);
  }

  /// `rest`: the queries that see only some of the keys; later ones are in the sum.
  KOKKOS_INLINE_FUNCTION void backward_keys(Block keys, Block rest, BackwardRows<Element> const& rows) {
    load_keys(keys);
    transpose_tile(sum_, depth_, depth_ + 1, sum_transposed_);
    multiply<false>(values_.plain(), sum_transposed_, grad_keys_, {keys.count, depth_, depth_ + 1});
    multiply<false>(keys_.plain(), sum_, products_, {keys.count, depth_, depth_});
    for (std::int64_t at = rest.begin; at < rest.end(); at += block) {
      Block const queries = block_at(at, rest.end());
      for (std::int64_t i = 0; i < first_.view.sharing; ++i) {
        load_queries(first_.neighbour(i), queries, rows);
        std::int64_t const lanes = round_up(queries.count, tile_columns);
        transpose_tile(queries_, lanes, depth_, transposed_);
        transpose_tile(grads_, lanes, depth_ + 1, grads_transposed_);
        multiply<false>(keys_.plain(), transposed_, weights_, {keys.count, queries.count, depth_});
        multiply<false>(values_.plain(), grads_transposed_, grad_weights_, {keys.count, queries.count, depth_ + 1});
        drop_unseen(queries, keys, weights_);
        drop_unseen(queries, keys, grad_weights_);
        multiply<true>(weights_.plain(), grads_, products_, {keys.count, depth_, queries.count});
        multiply<true>(grad_weights_.plain(), queries_, grad_keys_, {keys.count, depth_, queries.count});
      }
    }
    multiply_by_slopes(keys_, keys.count, grad_keys_);
    first_.store(grad_keys_, first_.of_keys(rows.grad_k), first_.key_row + keys.begin, keys.count);
    first_.store(products_, first_.of_keys(rows.grad_v), first_.key_row + keys.begin, keys.count);
  }

  KOKKOS_INLINE_FUNCTION void multiply_by_slopes(Tile<Real> features, std::int64_t rows, Tile<Real> gradients) const {
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t d = 0; d < depth_; ++d) {
        gradients[i][d] *= feature_slope(features[i][d]);
      }
    }
  }

  Head const& first_;
  std::int64_t depth_, stride_, wide_;
  Tile<Real> queries_, keys_;                 ///< features [tokens, head_dim]
  Tile<Real> values_;                         ///< (v, 1), [keys, head_dim + 1]
  Tile<Real> products_;                       ///< results [tokens, head_dim + 1]
  Tile<Real> grads_;                          ///< [queries, head_dim + 1]
  Tile<Real> transposed_, grads_transposed_;  ///< of queries_ and grads_
  Tile<Real> weights_, grad_weights_;         ///< [keys, queries]
  Tile<Real> grad_keys_;                      ///< [keys, head_dim]
  Tile<Real> sum_, sum_transposed_;           ///< [head_dim, head_dim + 1] and its transpose
};

/// Calls `work(heads, sequence, first head)` for each sequence and head of keys.
template <class Element, class Work>
void for_each_key_head(Execution& execution, char const* name, AttentionView<Element> const& view, Work const& work) {
  using Real = ArithmeticType<Element>;
  std::int64_t const key_heads = view.heads / view.sharing;
  for_each_with_scratch<Real>(
      execution, name, view.count * key_heads, LinearHeads<Element>::scratch_elements(view.head_dim),
      KOKKOS_LAMBDA(std::int64_t item, Scratch<Real> scratch) {
        AttentionHead<Element> const first(view, item / key_heads, item % key_heads * view.sharing);
        LinearHeads<Element> heads(first, scratch);
        work(heads, item);
      });
}

/// Attention::forward for linear scores.
template <class Element>
void linear_forward(Execution& execution, AttentionCall const& call, Tensor const& output, Tensor const& log_sum_exp) {
  using Real = ArithmeticType<Element>;
  AttentionView<Element> const view(call);
  auto const out = rows_of<Element>(output);
  auto const statistics = rows_of<Real>(log_sum_exp);
  auto const states = rows_of<Real>(call.state);
  std::int64_t const key_heads = view.heads / view.sharing;
  std::int64_t const state_size = view.head_dim * (view.head_dim + 1);
  for_each_key_head(
      execution, "linear attention forward", view, KOKKOS_LAMBDA(LinearHeads<Element> & heads, std::int64_t item) {
        heads.forward(out, statistics,
                      states ? states[item / key_heads] + item % key_heads * state_size : static_cast<Real*>(nullptr));
      });
}

/// Attention::backward for linear scores.
template <class Element>
void linear_backward(Execution& execution, AttentionCall const& call, BackwardRows<Element> const& rows) {
  AttentionView<Element> const view(call);
  for_each_key_head(
      execution, "linear attention backward", view,
      KOKKOS_LAMBDA(LinearHeads<Element> & heads, std::int64_t) { heads.backward(rows); });
}

}  // namespace heddle::kernels
