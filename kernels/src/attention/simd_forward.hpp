#pragma once

#include "simd_one_query.hpp"

namespace heddle::simd_attention {
namespace {

/// One number for each query of a block.
struct PerQuery {
  alignas(sizeof(Floats)) float data[attention_block];

  Floats load(std::int64_t vector) const { return lanes::load(data + vector * lanes::width); }
  void store(Floats value, std::int64_t vector) { lanes::store(value, data + vector * lanes::width); }
};

/// The running softmax of a block of queries: after each block of keys, sum = Σ 2^(score - maximum) over the keys so
/// far.
struct OnlineSoftmax {
  std::int64_t vectors;
  PerQuery maximum, sum;
  PerQuery correction;  ///< the factor for sums of earlier blocks of keys

  explicit OnlineSoftmax(std::int64_t columns) : vectors(columns / lanes::width) {
    for (std::int64_t v = 0; v < vectors; ++v) {
      maximum.store(lanes::all(-infinity), v);
      sum.store(Floats{}, v);
    }
  }

  /// The state of query i after keys whose weights had this normaliser.
  void resume(std::int64_t i, float log_sum_exp) {
    maximum.data[i] = log_sum_exp * log2_e;
    sum.data[i] = log_sum_exp == -infinity ? 0.0F : 1.0F;
  }

  /// Replaces scores by 2^(score - maximum).
  void take(Tile<float> scores, std::int64_t keys) {
    for (std::int64_t v = 0; v < vectors; ++v) {
      float* const first = scores.data + v * lanes::width;
      Floats const before = maximum.load(v);
      Floats highest = before;
      for (std::int64_t j = 0; j < keys; ++j) {
        highest = lanes::maximum(highest, lanes::load(first + j * scores.stride));
      }
      Floats const shift = highest == -infinity ? Floats{} : highest;
      Floats const factor = lanes::exp2_of_negative(before - shift);
      Floats total = sum.load(v) * factor;
      for (std::int64_t j = 0; j < keys; ++j) {
        float* const at = first + j * scores.stride;
        Floats const weight = lanes::exp2_of_negative(lanes::load(at) - shift);
        total += weight;
        lanes::store(weight, at);
      }
      maximum.store(highest, v);
      correction.store(factor, v);
      sum.store(total, v);
    }
  }

  PerQuery inverse_sums() const {
    PerQuery result;
    for (std::int64_t v = 0; v < vectors; ++v) {
      Floats const total = sum.load(v);
      result.store(total > 0.0F ? 1.0F / total : Floats{}, v);
    }
    return result;
  }
  PerQuery log_sum_exp() const {
    PerQuery result;
    for (std::int64_t v = 0; v < vectors; ++v) {
      Floats const total = sum.load(v);
      Floats const highest = maximum.load(v);
      result.store(total > 0.0F ? ln_2 * highest + lanes::log_of_positive(total) : highest, v);
    }
    return result;
  }
};

/// Tensors that forward writes.
template <class Element>
struct ForwardRows {
  Rows<Element> output;
  Rows<float> log_sum_exp;
};

/// Computes one block of queries of one head of one sequence.
template <class Element>
class QueryBlock {
 public:
  QueryBlock(Head<Element> const& head, Head<Element> const& next, Block queries, Scratch scratch)
      : head_(head),
        next_(next),
        keys_{head.of_keys(head.view.k), head.of_keys(head.view.v)},
        queries_(queries),
        first_row_(head.query_row + queries.begin),
        stride_(tile_stride(head.view)),
        softmax_(round_up(queries.count, lanes::width)) {
    std::int64_t const columns = softmax_.vectors * lanes::width;
    std::int64_t const max_keys = block_rows(head.keys);
    q_transposed_ = scratch.tile(stride_, columns);
    v_ = scratch.tile(max_keys, stride_);
    weights_ = scratch.tile(max_keys, columns);
    kept_ = scratch.tile(round_up(max_keys, 8), columns);
    sums_ = scratch.tile(block_rows(head.queries), stride_);
    spare_ = scratch.tile(max_keys > block_rows(head.queries) ? max_keys : block_rows(head.queries), stride_);
  }

  static std::int64_t scratch_elements(std::int64_t stride) {
    return attention_block * (4 * stride + 2 * attention_block);
  }

  void run(ForwardRows<Element> const& rows) {
    if (head_.view.is_additive()) {
      load(head_, head_.view.q, first_row_, queries_.count, spare_);
      transpose_widened<Element>(spare_, head_.view.head_dim, queries_.count, q_transposed_);
    } else {
      transpose(head_, head_.view.q, first_row_, queries_.count, q_transposed_);
    }
    prefetch(next_, head_.view.q, next_.query_row, next_.queries);
    bool const one_block = !head_.view.accumulate && head_.keys > 0 && head_.keys <= attention_block;
    if (one_block && head_.visible_keys(queries_).count > 0) {
      meet_all_keys(rows);
    } else {
      meet_keys_by_blocks(rows);
    }
    PerQuery const normalizers = softmax_.log_sum_exp();
    for (std::int64_t i = 0; i < queries_.count; ++i) {
      rows.log_sum_exp[first_row_ + i][head_.head] = normalizers.data[i];
    }
  }

 private:
  void meet_all_keys(ForwardRows<Element> const& rows) {
    auto const product = weigh({0, head_.keys});
    prefetch(next_, rows.output, next_.query_row, next_.queries);
    PerQuery const inverse = softmax_.inverse_sums();
    ToRows<Element> const to_rows(head_, rows.output, first_row_, false);
    lanes::multiply<group_vectors<Element>>(product, queries_.count, stride_,
                                            [&](std::int64_t row, std::int64_t column, auto& sums) {
                                              for (Floats& sum : sums) {
                                                sum *= inverse.data[row];
                                              }
                                              to_rows(row, column, sums);
                                            });
  }

  void meet_keys_by_blocks(ForwardRows<Element> const& rows) {
    if (head_.view.accumulate) {
      load(head_, rows.output, first_row_, queries_.count, sums_);
      for (std::int64_t i = 0; i < queries_.count; ++i) {
        softmax_.resume(i, rows.log_sum_exp[first_row_ + i][head_.head]);
      }
    } else {
      set_zero(sums_, queries_.count);
    }
    Block const visible = head_.visible_keys(queries_);
    std::int64_t const first_key = visible.begin / attention_block * attention_block;
    for (std::int64_t begin = first_key; begin < visible.end(); begin += attention_block) {
      Block const keys = kernels::block_at(begin, head_.keys);
      if (!head_.see(queries_, keys)) {
        continue;
      }
      auto const product = weigh(keys);
      lanes::multiply<group_vectors<Element>>(
          product, queries_.count, stride_, [&](std::int64_t row, std::int64_t column, auto const& sums) {
            float* at = sums_[row] + column;
            for (Floats const sum : sums) {
              lanes::store(softmax_.correction.data[row] * lanes::load(at) + sum, at);
              at += lanes::width;
            }
          });
    }
    PerQuery const inverse = softmax_.inverse_sums();
    for (std::int64_t i = 0; i < queries_.count; ++i) {
      for (std::int64_t d = 0; d < stride_; d += lanes::width) {
        lanes::store(inverse.data[i] * lanes::load(sums_[i] + d), sums_[i] + d);
      }
    }
    store(sums_, queries_.count, ToRows<Element>(head_, rows.output, first_row_, false));
  }

  /// The product, not yet computed, of the queries' weights for these keys with v.
  lanes::Product<float> weigh(Block keys) {
    auto const& view = head_.view;
    std::int64_t const first_key = head_.key_row + keys.begin;
    if (view.is_additive()) {
      load(head_, keys_.k, first_key, keys.count, spare_);
      kernels::additive_scores<WidenedOrder<Element>>(kernels::additive_operands(head_, q_transposed_, spare_, log2_e),
                                                      {keys.count, weights_.stride}, weights_);
    } else {
      inner_products(product_of(head_, keys_.k, first_key, keys.count, spare_, q_transposed_), keys.count,
                     view.scale * log2_e, weights_);
    }
    finish_scores(head_, queries_, keys, weights_, Tile<float>{});
    prefetch(next_, next_.of_keys(view.k), next_.key_row, next_.keys);
    load(head_, keys_.v, first_key, keys.count, v_);
    softmax_.take(weights_, keys.count);
    prefetch(next_, next_.of_keys(view.v), next_.key_row, next_.keys);
    if (view.dropout.active) {
      head_.fill_kept(kept_, queries_, keys);
      scale_elements(weights_, keys.count, kept_);
    }
    return {weights_.transposed(), v_, keys.count};
  }

  Head<Element> const& head_;
  Head<Element> const& next_;
  struct {
    Rows<Element> k, v;
  } keys_;  ///< of the head
  Block queries_;
  std::int64_t first_row_, stride_;
  OnlineSoftmax softmax_;
  Tile<float> q_transposed_;    ///< [units of head_dim, queries]
  Tile<float> v_;               ///< [keys, head_dim]
  Tile<float> weights_, kept_;  ///< [keys, queries]
  Tile<float> sums_;            ///< [queries, head_dim]: weights times v, summed over the blocks of keys
  Tile<float> spare_;           ///< [keys or queries, head_dim]
};

/// Attention::forward for calls of `Element`: float or BFloat16.
template <class Element>
void forward(Execution& execution, AttentionCall const& call, Tensor const& output, Tensor const& log_sum_exp) {
  ForwardRows<Element> const rows{kernels::rows_of<Element>(output), kernels::rows_of<float>(log_sum_exp)};
  if (forward_one_query<Element>(execution, call, rows.output, rows.log_sum_exp)) {
    return;
  }
  kernels::AttentionView<Element> const view(call);
  auto const work = [=](std::int64_t item, Scratch scratch) {
    Head<Element> const head = head_at(view, item);
    Head<Element> const next = head_at(view, item + 1);
    for (std::int64_t begin = 0; begin < head.queries; begin += attention_block) {
      Block const block = kernels::block_at(begin, head.queries);
      if (!view.accumulate || head.visible_keys(block).count > 0) {
        QueryBlock<Element>(head, next, block, scratch).run(rows);
      }
    }
  };
  kernels::for_each_with_scratch<float>(execution, "simd attention forward", view.count * view.heads,
                                        QueryBlock<Element>::scratch_elements(tile_stride(view)), work);
}

}  // namespace
}  // namespace heddle::simd_attention
