#pragma once

#include "attention/simd_forward.hpp"
#include "packs.hpp"

namespace heddle::amx_attention {
namespace {

using simd_attention::ForwardRows;
using simd_attention::OnlineSoftmax;
using simd_attention::PerQuery;

/// The keys and values of a head of one sequence, packed for all of its queries.
class Keys {
 public:
  /// `all_keys`: the rows of the tensor.
  Keys(Head const& head, std::int64_t all_keys, Scratch& scratch) : head_(head), all_keys_(all_keys) {
    std::int64_t const stride = simd_attention::tile_stride(head.view);
    k_ = scratch.tile(whole_rows(head.keys), stride / 2);
    v_ = scratch.tile(words_of(head.keys), stride);
  }
  static std::int64_t scratch_elements(std::int64_t max_keys, std::int64_t stride) {
    return round_up(max_keys, attention_block) * stride;
  }

  /// Packs the values at the first call.
  void pack_values() {
    if (!packed_) {
      pack_pairs(head_, head_.of_keys(head_.view.v), head_.key_row, head_.keys, v_);
      packed_ = true;
    }
  }

  /// The keys of a block, and pairs of its values.
  Left k(Block keys) const {
    return left_rows(head_, head_.of_keys(head_.view.k), head_.key_row + keys.begin, keys.count, all_keys_,
                     {k_[keys.begin], k_.stride});
  }
  Tile<float> v(Block keys) const { return {v_[keys.begin / 2], v_.stride}; }

 private:
  Head head_;
  std::int64_t all_keys_;
  bool packed_ = false;
  Tile<float> k_;  ///< [keys, words of head_dim]: where the keys cannot be read in their place
  Tile<float> v_;  ///< [pairs of keys, head_dim]
};

/// One block of queries of one head of one sequence.
class QueryBlock {
 public:
  QueryBlock(Head const& head, Head const& next, Block queries, Scratch scratch)
      : head_(head),
        next_(next),
        queries_(queries),
        first_row_(head.query_row + queries.begin),
        stride_(simd_attention::tile_stride(head.view)),
        softmax_(whole_rows(queries.count)) {
    std::int64_t const columns = whole_rows(queries.count);
    std::int64_t const max_keys = simd_attention::block_rows(head.keys);
    q_transposed_ = scratch.tile(stride_ / 2, columns);
    scores_ = scratch.tile(whole_rows(max_keys), columns);
    weights_ = scratch.tile(columns, words_of(max_keys));
    kept_ = head.view.dropout.active ? scratch.tile(round_up(max_keys, 8), columns) : Tile<float>{};
    sums_ = scratch.tile(columns, stride_);
  }
  static std::int64_t scratch_elements(std::int64_t stride) {
    return attention_block * (2 * stride + 3 * attention_block);
  }

  /// `Result`: the type of the output's elements.
  template <class Result>
  void run(Keys& packed, ForwardRows<Result> const& rows) {
    load();
    if (head_.view.accumulate) {
      resume(rows);
    }
    Block const visible = head_.visible_keys(queries_);
    std::int64_t const first_key = visible.begin / attention_block * attention_block;
    for (std::int64_t begin = first_key; begin < visible.end(); begin += attention_block) {
      Block const keys = kernels::block_at(begin, head_.keys);
      if (head_.see(queries_, keys)) {
        multiply_scores(packed, keys);
        packed.pack_values();  // here, because the vector units would wait for the scores
        weigh(keys);
        multiply_values(packed, keys, rows);
      }
    }
    write(rows);
  }

 private:
  void load() {
    pack_transposed(head_, head_.view.q, first_row_, queries_.count, q_transposed_);
    prefetch<false>(next_, head_.view.q, next_.query_row, next_.queries);
  }
  /// Takes up the results over earlier calls' keys.
  template <class Result>
  void resume(ForwardRows<Result> const& rows) {
    for (std::int64_t i = 0; i < queries_.count; ++i) {
      Result const* const from = head_.at(rows.output, first_row_ + i);
      for (std::int64_t d = 0; d < stride_; d += step) {
        lanes::Pair const before = load_sums(from + d, head_.view.head_dim - d);
        lanes::store(before.even, sums_[i] + d);
        lanes::store(before.odd, sums_[i] + d + lanes::width);
      }
      softmax_.resume(i, rows.log_sum_exp[first_row_ + i][head_.head]);
    }
    first_block_ = false;
  }

  void multiply_scores(Keys const& packed, Block keys) {
    multiply<false>(Product(packed.k(keys), q_transposed_, keys.count, queries_.count, head_.view.head_dim), scores_);
    prefetch<false>(next_, next_.of_keys(head_.view.k), next_.key_row, next_.keys);
  }

  /// Computes the queries' weights for these keys.
  void weigh(Block keys) {
    auto const& view = head_.view;
    float factor = view.scale * log2_e;
    bool const plain = view.soft_cap == 0 && !view.bias && factor > 0;
    if (!plain) {
      scale(scores_, keys.count, factor);
      factor = 1;
    }
    simd_attention::finish_scores(head_, queries_, keys, scores_, Tile<float>{});
    weights_.stride = words_of(keys.count);
    if (view.dropout.active) {
      head_.fill_kept(kept_, queries_, keys);
    }
    for (std::int64_t v = 0; v < softmax_.vectors; ++v) {
      keep_awake();
      view.dropout.active ? weigh<true>(v, keys.count, factor) : weigh<false>(v, keys.count, factor);
    }
    prefetch<false>(next_, next_.of_keys(view.v), next_.key_row, next_.keys);
  }

  template <class Result>
  void multiply_values(Keys const& packed, Block keys, ForwardRows<Result> const& rows) {
    Product const product({weights_.data, weights_.stride * 4}, packed.v(keys), queries_.count, stride_, keys.count);
    if (first_block_) {
      multiply<false>(product, sums_);
    } else {
      for (std::int64_t i = 0; i < queries_.count; ++i) {
        scale({sums_[i], stride_}, 1, softmax_.correction.data[i]);
      }
      multiply<true>(product, sums_);
    }
    first_block_ = false;
    prefetch<true>(next_, rows.output, next_.query_row, next_.queries);
  }

  template <class Result>
  void write(ForwardRows<Result> const& rows) {
    keep_awake();
    PerQuery const inverse = softmax_.inverse_sums();
    PerQuery const normalizers = softmax_.log_sum_exp();
    for (std::int64_t i = 0; i < queries_.count; ++i) {
      if (i % 8 == 0) {
        keep_awake();
      }
      Result* const to = head_.at(rows.output, first_row_ + i);
      for (std::int64_t d = 0; d < stride_; d += step) {
        lanes::Pair const sums{lanes::load(sums_[i] + d), lanes::load(sums_[i] + d + lanes::width)};
        store_sums(first_block_ ? lanes::Pair{} : lanes::Pair{inverse.data[i] * sums.even, inverse.data[i] * sums.odd},
                   to + d, head_.view.head_dim - d);
      }
      rows.log_sum_exp[first_row_ + i][head_.head] = normalizers.data[i];
    }
  }

  /// The weights of 16 queries: 2^(factor * score - maximum), as rows of bfloat16.
  template <bool dropped>
  void weigh(std::int64_t vector, std::int64_t keys, float factor) {
    float const* const scores = scores_.data + vector * lanes::width;
    std::int64_t const stride = scores_.stride;
    float const* const kept = kept_.data + vector * lanes::width;
    Floats const before = softmax_.maximum.load(vector);
    Floats highest[2] = {lanes::all(-infinity), lanes::all(-infinity)};
    for (std::int64_t j = 0; j + 1 < keys; j += 2) {
      highest[0] = lanes::maximum(highest[0], lanes::load(scores + j * stride));
      highest[1] = lanes::maximum(highest[1], lanes::load(scores + (j + 1) * stride));
    }
    highest[0] = lanes::maximum(highest[0], lanes::load(scores + (keys - 1) * stride));
    Floats const maximum = lanes::maximum(before, factor * lanes::maximum(highest[0], highest[1]));
    Floats const shift = maximum == -infinity ? Floats{} : maximum;
    Floats const correction = lanes::rough_exp2_of_negative(before - shift);
    Floats total = softmax_.sum.load(vector) * correction;
    auto const weight = [&](std::int64_t j) {
      Floats const value = lanes::rough_exp2_of_negative(factor * lanes::load(scores + j * stride) - shift);
      total += value;
      return dropped ? value * lanes::load(kept + j * stride) : value;
    };
    for (std::int64_t begin = 0; begin < keys; begin += step) {
      Floats pairs[lanes::width];
      std::int64_t const count = keys - begin < step ? keys - begin : step;
      std::int64_t pair = 0;
      for (; 2 * pair + 1 < count; ++pair) {
        Floats const even = weight(begin + 2 * pair);
        pairs[pair] = std::bit_cast<Floats>(lanes::rounded({even, weight(begin + 2 * pair + 1)}));
      }
      if (2 * pair < count) {
        pairs[pair] = std::bit_cast<Floats>(lanes::rounded({weight(begin + 2 * pair), Floats{}}));
        ++pair;
      }
      store_transposed(pairs, pair, {weights_[vector * lanes::width] + begin / 2, weights_.stride});
    }
    softmax_.maximum.store(maximum, vector);
    softmax_.correction.store(correction, vector);
    softmax_.sum.store(total, vector);
  }

  Head head_, next_;
  Block queries_;
  std::int64_t first_row_, stride_;
  OnlineSoftmax softmax_;
  bool first_block_ = true;
  Tile<float> q_transposed_;  ///< [pairs of head_dim, queries]
  Tile<float> scores_;        ///< [keys, queries]
  Tile<float> weights_;       ///< [queries, pairs of keys], bfloat16
  Tile<float> kept_;          ///< [keys, queries]
  Tile<float> sums_;          ///< [queries, head_dim]: weights times v, summed over the blocks of keys
};

/// All queries of the heads that share one of keys.
template <class Result>
void forward_heads(View const& view, std::int64_t all_keys, std::int64_t first_head, ForwardRows<Result> const& rows,
                   Scratch scratch) {
  Head head = simd_attention::head_at(view, first_head);
  Keys keys(head, all_keys, scratch);
  for (std::int64_t i = 0; i < view.sharing; ++i, ++head.head) {
    Head const next = simd_attention::head_at(view, first_head + i + 1);
    for (std::int64_t begin = 0; begin < head.queries; begin += attention_block) {
      Block const block = kernels::block_at(begin, head.queries);
      if (!view.accumulate || head.visible_keys(block).count > 0) {
        QueryBlock(head, next, block, scratch).run(keys, rows);
      }
    }
  }
}

template <class Result>
void forward(Execution& execution, AttentionCall const& call, Tensor const& output, Tensor const& log_sum_exp) {
  ForwardRows<Result> const rows{kernels::rows_of<Result>(output), kernels::rows_of<float>(log_sum_exp)};
  View const view(call);
  std::int64_t const stride = simd_attention::tile_stride(view);
  std::int64_t const all_keys = call.k.dim(0);
  auto const work = [=](std::int64_t item, Scratch scratch) {
    forward_heads(view, all_keys, item * view.sharing, rows, scratch);
  };
  for_each_item(execution, "amx attention forward", view.count * view.heads / view.sharing,
                Keys::scratch_elements(call.keys.max_length, stride) + QueryBlock::scratch_elements(stride), work);
}

}  // namespace
}  // namespace heddle::amx_attention
