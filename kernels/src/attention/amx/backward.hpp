#pragma once

#include "attention/simd_forward.hpp"
#include "packs.hpp"

namespace heddle::amx_attention {
namespace {

/// The tensors that backward reads beside the call.
struct GivenRows {
  Rows<BFloat16> output, grad_output;
  Rows<float> log_sum_exp;
};

/// The gradients that it writes. `Result`: the type of their elements.
template <class Result>
struct GradientRows {
  Rows<Result> q, k, v;
  kernels::SharedGradients<float> shared;
};

/// A block of queries of one head and what belongs to them, packed for all blocks of keys.
class Queries {
 public:
  Queries(Head const& head, Block queries, Scratch scratch) : head_(head), block_(queries) {
    std::int64_t const stride = simd_attention::tile_stride(head.view);
    std::int64_t const columns = whole_rows(queries.count);
    q_transposed = scratch.tile(stride / 2, columns);
    grad_output_transposed = scratch.tile(stride / 2, columns);
    q_pairs = scratch.tile(words_of(queries.count), stride);
    grad_output_pairs = scratch.tile(words_of(queries.count), stride);
    log_sum_exp = scratch.tile(1, columns);
    delta = scratch.tile(1, columns);
    grad_q = scratch.tile(columns, stride);
  }
  static std::int64_t scratch_elements(std::int64_t stride) { return attention_block * (3 * stride + 2); }

  Block block() const { return block_; }

  /// `all_keys`: there will be one block of keys, so that `delta` is not needed.
  void pack_transposed(GivenRows const& rows, bool all_keys) const {
    std::int64_t const first_row = head_.query_row + block_.begin;
    amx_attention::pack_transposed(head_, head_.view.q, first_row, block_.count, q_transposed);
    amx_attention::pack_transposed(head_, rows.grad_output, first_row, block_.count, grad_output_transposed);
    keep_awake();
    float const* from = rows.log_sum_exp[first_row] + head_.head;
    for (std::int64_t i = 0; i < log_sum_exp.stride; ++i) {
      log_sum_exp.data[i] = i < block_.count ? *from : -infinity;
      from += i + 1 < block_.count ? rows.log_sum_exp.stride : 0;
    }
    for (std::int64_t i = 0; i < log_sum_exp.stride; i += lanes::width) {
      // A row without visible keys, or beyond the queries, has no weights: 2^(score - infinity).
      Floats const normalizer = lanes::load(log_sum_exp.data + i);
      lanes::store(normalizer == -infinity ? lanes::all(infinity) : normalizer * log2_e, log_sum_exp.data + i);
      lanes::store(Floats{}, delta.data + i);
    }
    for (std::int64_t i = 0; i < block_.count && !all_keys; ++i) {
      delta.data[i] = delta_of(rows, first_row + i);
    }
  }

  void pack_rows(GivenRows const& rows) const {
    std::int64_t const first_row = head_.query_row + block_.begin;
    pack_pairs(head_, head_.view.q, first_row, block_.count, q_pairs);
    pack_pairs(head_, rows.grad_output, first_row, block_.count, grad_output_pairs);
  }

  Tile<float> q_transposed, grad_output_transposed;  ///< [pairs of head_dim, queries]
  Tile<float> q_pairs, grad_output_pairs;            ///< [pairs of queries, head_dim]
  Tile<float> log_sum_exp, delta;                    ///< [1, queries]; log_sum_exp in units of ln 2
  Tile<float> grad_q;                                ///< [queries, head_dim]: the sum over blocks of keys

 private:
  /// grad_output · output, for calls that do not hold all keys.
  float delta_of(GivenRows const& rows, std::int64_t row) const {
    BFloat16 const* const grad = head_.at(rows.grad_output, row);
    BFloat16 const* const output = head_.at(rows.output, row);
    std::int64_t const head_dim = head_.view.head_dim;
    Floats products = {};
    for (std::int64_t d = 0; d < head_dim; d += step) {
      products = lanes::add_products_of_pairs(products, simd_attention::load_group(grad + d, head_dim - d),
                                              simd_attention::load_group(output + d, head_dim - d));
    }
    return lanes::sum(products);
  }

  Head head_;
  Block block_;
};

/// The weights of a block of queries and keys and the gradients of their scores.
class Weights {
 public:
  Weights(View const& view, std::int64_t max_queries, std::int64_t max_keys, Scratch& scratch) : view_(view) {
    std::int64_t const columns = whole_rows(max_queries);
    weights_ = scratch.tile(whole_rows(max_keys), columns);
    grads_ = scratch.tile(whole_rows(max_keys), columns);
    kept_ = view.dropout.active ? scratch.tile(round_up(max_keys, 8), columns) : Tile<float>{};
    slopes_ = view.soft_cap > 0 ? scratch.tile(max_keys, columns) : Tile<float>{};
    weight_rows = scratch.tile(whole_rows(max_keys), words_of(max_queries));
    grad_rows = scratch.tile(whole_rows(max_keys), words_of(max_queries));
    grads_transposed = scratch.tile(columns, words_of(max_keys));
  }
  static std::int64_t scratch_elements() { return 6 * attention_block * attention_block; }

  void multiply_factors(Queries const& queries, Block keys, Left k, Left v) {
    Block const block = queries.block();
    for (auto* const tile : {&weights_, &grads_, &kept_, &slopes_}) {
      tile->stride = whole_rows(block.count);
    }
    weight_rows.stride = grad_rows.stride = words_of(block.count);
    grads_transposed.stride = words_of(keys.count);
    multiply<false>({k, queries.q_transposed, keys.count, block.count, view_.head_dim}, weights_);
    multiply<false>({v, queries.grad_output_transposed, keys.count, block.count, view_.head_dim}, grads_);
  }

  /// After multiply_factors: computes `weight_rows`.
  void weigh(Head const& head, Queries const& queries, Block keys, bool all_keys) {
    Block const block = queries.block();
    float factor = view_.scale * log2_e;
    if (view_.soft_cap > 0 || view_.bias || !(factor > 0)) {
      scale(weights_, keys.count, factor);
      factor = 1;
    }
    simd_attention::finish_scores(head, block, keys, weights_, slopes_);
    if (view_.dropout.active) {
      head.fill_kept(kept_, block, keys);
    }
    for (std::int64_t begin = 0; begin < weights_.stride; begin += lanes::width) {
      Floats const total = view_.dropout.active ? weigh<true>(queries, begin, keys.count, factor)
                                                : weigh<false>(queries, begin, keys.count, factor);
      delta_.store(all_keys ? total : lanes::load(queries.delta.data + begin), begin / lanes::width);
    }
    clear_last_columns(weight_rows, keys.count);
  }

  /// After weigh: computes `grad_rows` and `grads_transposed`. `bias_gradient`: where the gradient of the head's biases
  /// is added; may be null.
  void differentiate(Head const& head, Block queries, Block keys, float* bias_gradient) {
    bool const plain = view_.soft_cap == 0 && bias_gradient == nullptr;
    if (!plain) {
      differentiate_softmax(keys.count);
      differentiate_scores(head, queries, keys, bias_gradient);
    }
    float const* const grads = grads_.data;
    for (std::int64_t begin = 0; begin < weights_.stride; begin += lanes::width) {
      if (plain) {
        Floats const delta = delta_.load(begin / lanes::width);
        pack_gradients(begin, keys.count, [=, weights = weights_.data, scale = view_.scale](std::int64_t place) {
          return scale * lanes::load(weights + place) * (lanes::load(grads + place) - delta);
        });
      } else {
        pack_gradients(begin, keys.count, [=](std::int64_t place) { return lanes::load(grads + place); });
      }
    }
    clear_last_columns(grad_rows, keys.count);
  }

  Tile<float> weight_rows, grad_rows;  ///< [keys, pairs of queries], bfloat16: weights after dropout, scores' gradients
  Tile<float> grads_transposed;        ///< [queries, pairs of keys], bfloat16

 private:
  /// Scores become weights, and their gradients those of the weights before dropout; returns Σ weight * gradient.
  template <bool dropped>
  Floats weigh(Queries const& queries, std::int64_t begin, std::int64_t keys, float factor) {
    Floats const normalizer = lanes::load(queries.log_sum_exp.data + begin);
    // Locals, because the compiler has to assume that each store changes the members.
    std::int64_t const stride = weights_.stride;
    float* at = weights_.data + begin;
    float* grad = grads_.data + begin;
    float const* kept = kept_.data + begin;
    Tile<float> rows{weight_rows.data + begin / 2, weight_rows.stride};
    Floats total = {};
    for (std::int64_t j = 0; j < keys; ++j) {
      if (j % 16 == 0) {
        keep_awake();
      }
      Floats const weight = lanes::rough_exp2_of_negative(factor * lanes::load(at) - normalizer);
      Floats gradient = lanes::load(grad);
      Floats used = weight;
      if constexpr (dropped) {
        gradient *= lanes::load(kept);
        used *= lanes::load(kept);
        lanes::store(gradient, grad);
        kept += stride;
      }
      total += weight * gradient;
      lanes::store(weight, at);
      store_half(rounded_in_order(used, used), rows.data);
      at += stride;
      grad += stride;
      rows.data += rows.stride;
    }
    return total;
  }

  /// Packs the gradients that `gradient` gives for places in tiles [keys, queries], of 16 queries from `begin` on.
  template <class Gradient>
  void pack_gradients(std::int64_t begin, std::int64_t keys, Gradient const& gradient) {
    std::int64_t const stride = grads_.stride;
    Tile<float> const transposed = grads_transposed;
    Tile<float> rows{grad_rows.data + begin / 2, grad_rows.stride};
    std::int64_t place = begin;
    for (std::int64_t first = 0; first < keys; first += step) {
      Floats pairs[lanes::width];
      std::int64_t const count = keys - first < step ? keys - first : step;
      std::int64_t pair = 0;
      for (; 2 * pair + 1 < count; ++pair, place += 2 * stride, rows.data += 2 * rows.stride) {
        Words const halves = rounded_in_order(gradient(place), gradient(place + stride));
        store_half(halves, rows.data);
        store_other_half(halves, rows[1]);
        pairs[pair] = interleaved(halves);
      }
      if (2 * pair < count) {
        Words const halves = rounded_in_order(gradient(place), Floats{});
        store_half(halves, rows.data);
        pairs[pair++] = interleaved(halves);
      }
      store_transposed(pairs, pair, {transposed[begin] + first / 2, transposed.stride});
    }
  }

  void differentiate_softmax(std::int64_t keys) {
    for (std::int64_t begin = 0; begin < weights_.stride; begin += lanes::width) {
      Floats const delta = delta_.load(begin / lanes::width);
      for (std::int64_t j = 0; j < keys; ++j) {
        float* const grad = grads_[j] + begin;
        lanes::store(lanes::load(weights_[j] + begin) * (lanes::load(grad) - delta), grad);
      }
    }
  }
  /// Adds the gradient of the biases. Then scores' gradients become those of inner products, times scale.
  void differentiate_scores(Head const& head, Block queries, Block keys, float* bias_gradient) {
    if (bias_gradient != nullptr) {
      kernels::add_bias_gradient(head, queries, keys, grads_, bias_gradient);
    }
    if (view_.soft_cap > 0) {
      simd_attention::scale_elements(grads_, keys.count, slopes_);
    }
    scale(grads_, keys.count, view_.scale);
  }

  /// The last 16 of an odd number of times 16 queries have no partner in a step.
  void clear_last_columns(Tile<float> rows, std::int64_t keys) const {
    for (std::int64_t j = 0; weights_.stride % step != 0 && j < keys; ++j) {
      std::memset(rows[j] + weights_.stride / 2, 0, 32);
    }
  }

  View const& view_;
  Tile<float> weights_, grads_, kept_, slopes_;  ///< [keys, queries]
  simd_attention::PerQuery delta_;
};

/// All gradients of the heads of one sequence that share a head of keys, block of keys by block of queries.
template <class Result>
class BackwardHeads {
 public:
  /// `head`: the first of these heads; `next`: the first of the following ones; `all_keys`: the rows of the tensor.
  BackwardHeads(Head const& head, Head const& next, GivenRows const& rows, GradientRows<Result> const& gradients,
                std::int64_t all_keys, Scratch scratch)
      : head_(head),
        next_(next),
        view_(head.view),
        rows_(rows),
        gradients_(gradients),
        all_keys_(all_keys),
        stride_(simd_attention::tile_stride(head.view)),
        weights_(head.view, simd_attention::block_rows(head.queries), simd_attention::block_rows(head.keys), scratch) {
    std::int64_t const max_keys = simd_attention::block_rows(head.keys);
    grad_k_ = scratch.tile(whole_rows(max_keys), stride_);
    grad_v_ = scratch.tile(whole_rows(max_keys), stride_);
    k_copy_ = scratch.tile(whole_rows(max_keys), stride_ / 2);
    v_copy_ = scratch.tile(whole_rows(max_keys), stride_ / 2);
    k_pairs_ = scratch.tile(words_of(max_keys), stride_);
    queries_ = scratch;
  }
  static std::int64_t scratch_elements(View const& view, std::int64_t max_queries) {
    std::int64_t const stride = simd_attention::tile_stride(view);
    std::int64_t const blocks = (max_queries + attention_block - 1) / attention_block;
    return Weights::scratch_elements() + 4 * attention_block * stride +
           view.sharing * blocks * Queries::scratch_elements(stride);
  }

  void run() {
    for (std::int64_t i = 0; i < view_.sharing; ++i) {
      gradients_.shared.bias.begin(item_of(head_) + i);
    }
    one_block_ = head_.keys > 0 && head_.keys <= attention_block && view_.key_position == nullptr && !view_.accumulate;
    each_block([&](Head const&, Queries const& queries) {
      queries.pack_transposed(rows_, one_block_);
      if (!one_block_) {
        queries.pack_rows(rows_);
        simd_attention::set_zero(queries.grad_q, queries.block().count);
      }
    });
    prefetch<false>(next_, view_.q, next_.query_row, next_.queries);
    prefetch<false>(next_, rows_.grad_output, next_.query_row, next_.queries);
    for (std::int64_t begin = 0; begin < head_.keys; begin += attention_block) {
      meet(kernels::block_at(begin, head_.keys));
    }
    each_block([&](Head const& head, Queries const& queries) {
      store_rows(queries.grad_q, queries.block().count, head, gradients_.q, head.query_row + queries.block().begin);
    });
    prefetch<true>(next_, gradients_.q, next_.query_row, next_.queries);
  }

 private:
  /// The index of the head among the heads of all sequences.
  std::int64_t item_of(Head const& head) const { return head.sequence * view_.heads + head.head; }

  /// Calls call(head, queries) for each block of queries of each head.
  template <class Call>
  void each_block(Call const& call) const {
    Scratch scratch = queries_;
    for (std::int64_t i = 0; i < view_.sharing; ++i) {
      Head const head = head_.neighbour(i);
      for (std::int64_t begin = 0; begin < head.queries; begin += attention_block) {
        call(head, Queries(head, kernels::block_at(begin, head.queries), scratch));
        scratch.next += Queries::scratch_elements(stride_);
      }
    }
  }

  /// Adds the contributions of a block of keys and all queries that see it.
  void meet(Block keys) {
    std::int64_t const first_key = head_.key_row + keys.begin;
    Left const k = left_rows(head_, head_.of_keys(view_.k), first_key, keys.count, all_keys_, k_copy_);
    Left const v = left_rows(head_, head_.of_keys(view_.v), first_key, keys.count, all_keys_, v_copy_);
    bool met = false;
    each_block([&](Head const& head, Queries const& queries) {
      if (head.see(queries.block(), keys)) {
        weights_.multiply_factors(queries, keys, k, v);
        // Packs follow here, because the vector units would wait for the products.
        if (one_block_) {
          queries.pack_rows(rows_);
        }
        if (!met) {
          pack_pairs(head_, head_.of_keys(view_.k), first_key, keys.count, k_pairs_);
        }
        weights_.weigh(head, queries, keys, one_block_);
        met ? add_products<true>(head, queries, keys) : add_products<false>(head, queries, keys);
        met = true;
      } else if (one_block_) {
        simd_attention::set_zero(queries.grad_q, queries.block().count);
      }
    });
    if (!met) {
      simd_attention::set_zero(grad_k_, keys.count);
      simd_attention::set_zero(grad_v_, keys.count);
    }
    store_rows(grad_v_, keys.count, head_, head_.of_keys(gradients_.v), first_key);
    prefetch<true>(next_, next_.of_keys(gradients_.v), next_.key_row, next_.keys);
    store_rows(grad_k_, keys.count, head_, head_.of_keys(gradients_.k), first_key);
    prefetch<true>(next_, next_.of_keys(gradients_.k), next_.key_row, next_.keys);
  }

  /// `met`: the block of keys has met other queries before.
  template <bool met>
  void add_products(Head const& head, Queries const& queries, Block keys) {
    auto const left = [](Tile<float> rows) { return Left{rows.data, rows.stride * 4}; };
    std::int64_t const count = queries.block().count;
    multiply<met>({left(weights_.weight_rows), queries.grad_output_pairs, keys.count, stride_, count}, grad_v_);
    weights_.differentiate(head, queries.block(), keys, gradients_.shared.bias.of(item_of(head)));
    prefetch<false>(next_, next_.of_keys(view_.k), next_.key_row, next_.keys);
    multiply<met>({left(weights_.grad_rows), queries.q_pairs, keys.count, stride_, count}, grad_k_);
    prefetch<false>(next_, next_.of_keys(view_.v), next_.key_row, next_.keys);
    Product const to_queries(left(weights_.grads_transposed), k_pairs_, count, stride_, keys.count);
    one_block_ ? multiply<false>(to_queries, queries.grad_q) : multiply<true>(to_queries, queries.grad_q);
  }

  Head const& head_;
  Head const& next_;
  View const& view_;
  GivenRows const& rows_;
  GradientRows<Result> const& gradients_;
  std::int64_t all_keys_, stride_;
  bool one_block_ = false;  ///< one block of keys, which holds all of them
  Weights weights_;
  Tile<float> grad_k_, grad_v_;  ///< [keys, head_dim]
  Tile<float> k_copy_, v_copy_;  ///< [keys, pairs of head_dim]: where keys and values cannot be read in their place
  Tile<float> k_pairs_;          ///< [pairs of keys, head_dim]
  Scratch queries_;
};

template <class Result>
void backward(Execution& execution, AttentionCall const& call, Tensor const& output, Tensor const& log_sum_exp,
              Tensor const& grad_output, AttentionGradients const& gradients) {
  View const view(call);
  ArenaScope const scope(execution.scratch);
  GivenRows const rows{kernels::rows_of<BFloat16>(output), kernels::rows_of<BFloat16>(grad_output),
                       kernels::rows_of<float>(log_sum_exp)};
  GradientRows<Result> const written{kernels::rows_of<Result>(gradients.q),
                                     kernels::rows_of<Result>(gradients.k),
                                     kernels::rows_of<Result>(gradients.v),
                                     {execution.scratch, gradients, view.count}};
  std::int64_t const all_keys = call.k.dim(0);
  auto const work = [=](std::int64_t item, Scratch scratch) {
    Head const head = simd_attention::head_at(view, item * view.sharing);
    Head const next = simd_attention::head_at(view, (item + 1) * view.sharing);
    BackwardHeads<Result>(head, next, rows, written, all_keys, scratch).run();
  };
  for_each_item(execution, "amx attention backward", view.count * view.heads / view.sharing,
                BackwardHeads<Result>::scratch_elements(view, call.queries.max_length), work);
  written.shared.add_to(execution, gradients, view.count);
}

}  // namespace
}  // namespace heddle::amx_attention
