#pragma once

#include "simd.hpp"

namespace heddle::simd_attention {
namespace {

/// Adds a product's rows to a tile's rows.
struct ToTile {
  Tile<float> tile;

  template <std::size_t vectors>
  void operator()(std::int64_t row, std::int64_t column, Floats const (&sums)[vectors]) const {
    float* at = tile[row] + column;
    for (Floats const sum : sums) {
      lanes::store(lanes::load(at) + sum, at);
      at += lanes::width;
    }
  }
};

/// Computes all gradients of the heads of one sequence that share a head of keys, block of queries by block of keys.
template <class Element>
class BackwardHeads {
 public:
  /// `head`: the first of these heads; `next`: the first of the following ones.
  BackwardHeads(Head<Element> const& head, Head<Element> const& next, AllBackwardRows<Element> const& rows,
                Scratch scratch)
      : head_(head), next_(next), view_(head.view), rows_(rows), stride_(tile_stride(head.view)) {
    std::int64_t const max_keys = block_rows(head.keys);
    std::int64_t const max_queries = block_rows(head.queries);
    std::int64_t const columns = round_up(max_queries, lanes::width);
    q_ = scratch.tile(max_queries, stride_);
    grad_output_ = scratch.tile(max_queries, stride_);
    k_ = scratch.tile(max_keys, stride_);
    q_transposed_ = scratch.tile(stride_, columns);
    grad_output_transposed_ = scratch.tile(stride_, columns);
    weights_ = scratch.tile(max_keys, columns);
    grad_scores_ = scratch.tile(max_keys, columns);
    kept_ = scratch.tile(round_up(max_keys, 8), columns);
    slopes_ = view_.soft_cap > 0 ? scratch.tile(max_keys, columns) : Tile<float>{};
    spare_ = scratch.tile(max_keys, stride_);
    grad_k_ = scratch.tile(max_keys, stride_);
    grad_v_ = scratch.tile(max_keys, stride_);
    grad_q_ = scratch.tile(view_.sharing * head.queries, stride_);
  }

  static std::int64_t scratch_elements(kernels::AttentionView<Element> const& view, std::int64_t max_queries) {
    std::int64_t const rows = 8 * attention_block + view.sharing * round_up(max_queries, attention_block);
    return rows * tile_stride(view) + 4 * attention_block * attention_block;
  }

  void run() {
    for (std::int64_t i = 0; i < view_.sharing; ++i) {
      rows_.shared.bias.begin(item() + i);
      rows_.shared.score_weight.begin(item() + i);
    }
    Block const queries = kernels::block_at(0, head_.queries);
    Block const keys = kernels::block_at(0, head_.keys);
    bool const one_block = queries.count == head_.queries && keys.count == head_.keys && keys.count > 0;
    if (one_block && view_.sharing == 1 && !view_.is_additive() && head_.visible_keys(queries).count > 0) {
      load(head_, view_.k, head_.key_row, keys.count, k_);
      differentiate(queries, keys);
      give(queries, keys, to_rows(rows_.grad_q, head_.query_row), to_rows(rows_.grad_k, head_.key_row),
           to_rows(rows_.grad_v, head_.key_row));
    } else {
      run_by_blocks();
    }
  }

 private:
  ToRows<Element> to_rows(Rows<Element> const& rows, std::int64_t first) const {
    return {head_, rows, first, view_.accumulate};
  }
  /// The index of the head among the heads of all sequences.
  std::int64_t item() const { return head_.sequence * view_.heads + head_.head; }

  /// The queries' gradients are summed in scratch over the blocks of keys, the keys' gradients over all heads.
  void run_by_blocks() {
    std::int64_t const first_head = head_.head;
    set_zero(grad_q_, view_.sharing * head_.queries);
    for (std::int64_t key_begin = 0; key_begin < head_.keys; key_begin += attention_block) {
      Block const keys = kernels::block_at(key_begin, head_.keys);
      std::int64_t const first_key = head_.key_row + key_begin;
      load(head_, head_.of_keys(view_.k), first_key, keys.count, k_);
      set_zero(grad_k_, keys.count);
      set_zero(grad_v_, keys.count);
      for (head_.head = first_head; head_.head < first_head + view_.sharing; ++head_.head) {
        add_gradients_of(keys, {grad_q_[(head_.head - first_head) * head_.queries], stride_});
      }
      head_.head = first_head;
      store(grad_k_, keys.count, to_rows(head_.of_keys(rows_.grad_k), first_key));
      store(grad_v_, keys.count, to_rows(head_.of_keys(rows_.grad_v), first_key));
    }
    for (std::int64_t i = 0; i < view_.sharing; ++i) {
      head_.head = first_head + i;
      store({grad_q_[i * head_.queries], stride_}, head_.queries, to_rows(rows_.grad_q, head_.query_row));
    }
    head_.head = first_head;
  }

  /// Adds the contributions of all of the head's queries and a block of keys.
  void add_gradients_of(Block keys, Tile<float> all_grad_q) {
    for (std::int64_t begin = 0; begin < head_.queries; begin += attention_block) {
      Block const queries = kernels::block_at(begin, head_.queries);
      if (head_.see(queries, keys)) {
        differentiate(queries, keys);
        Tile<float> const grad_q{all_grad_q[begin], stride_};
        if (view_.is_additive()) {
          give_additive(queries, keys, grad_q);
        } else {
          give(queries, keys, ToTile{grad_q}, ToTile{grad_k_}, ToTile{grad_v_});
        }
      }
    }
  }

  void load_queries(Block queries) {
    std::int64_t const first_row = head_.query_row + queries.begin;
    for (auto* const tile : {&q_transposed_, &grad_output_transposed_, &weights_, &grad_scores_, &kept_, &slopes_}) {
      tile->stride = round_up(queries.count, lanes::width);
    }
    load(head_, view_.q, first_row, queries.count, q_);
    if (view_.is_additive()) {
      transpose_widened<Element>(q_, view_.head_dim, queries.count, q_transposed_);
    } else {
      transpose(head_, view_.q, first_row, queries.count, q_transposed_);
    }
    load(head_, rows_.grad_output, first_row, queries.count, grad_output_);
    transpose(head_, rows_.grad_output, first_row, queries.count, grad_output_transposed_);
    float normalizers[attention_block];
    for (std::int64_t i = 0; i < weights_.stride; ++i) {
      normalizers[i] = i < queries.count ? rows_.log_sum_exp[first_row + i][head_.head] : -infinity;
    }
    for (std::int64_t v = 0; v < weights_.stride / lanes::width; ++v) {
      // A row without visible keys, or beyond the queries, has no weights: 2^(score - infinity).
      Floats const normalizer = lanes::load(normalizers + v * lanes::width);
      log_sum_exp_[v] = normalizer == -infinity ? lanes::all(infinity) : normalizer * log2_e;
    }
  }

  /// Computes delta = grad_output · output of each query, for calls that do not hold all keys.
  void load_delta(Block queries) {
    Element const* output = head_.at(rows_.output, head_.query_row + queries.begin);
    Element const* grad = head_.at(rows_.grad_output, head_.query_row + queries.begin);
    // Columns beyond the queries take part in the sums of additive scores.
    delta_[(queries.count - 1) / lanes::width] = Floats{};
    for (std::int64_t i = 0; i < queries.count; ++i, output += rows_.output.stride, grad += rows_.grad_output.stride) {
      Floats products = {};
      for (std::int64_t d = 0; d < view_.head_dim; d += group<Element>) {
        products = Unit<Element>::multiply_add(products, load_group<Element>(output + d, view_.head_dim - d),
                                               load_group<Element>(grad + d, view_.head_dim - d));
      }
      delta_[i / lanes::width][i % lanes::width] = lanes::sum(products);
    }
  }

  /// Computes the dropped-out weights of a block of queries and keys and the gradients of its scores.
  void differentiate(Block queries, Block keys) {
    bool const all_keys = keys.count == head_.keys && view_.key_position == nullptr && !view_.accumulate;
    load_queries(queries);
    if (!all_keys) {
      load_delta(queries);
    }
    std::int64_t const first_key = head_.key_row + keys.begin;
    if (view_.is_additive()) {
      kernels::additive_scores<WidenedOrder<Element>>(additive(log2_e), {keys.count, weights_.stride}, weights_);
    } else {
      inner_products(product_of(head_, head_.of_keys(view_.k), first_key, keys.count, spare_, q_transposed_),
                     keys.count, view_.scale * log2_e, weights_);
    }
    finish_scores(head_, queries, keys, weights_, slopes_);
    prefetch(next_, view_.q, next_.query_row, next_.queries);
    inner_products(product_of(head_, head_.of_keys(view_.v), first_key, keys.count, spare_, grad_output_transposed_),
                   keys.count, 1, grad_scores_);
    prefetch(next_, next_.of_keys(view_.k), next_.key_row, next_.keys);
    if (view_.dropout.active) {
      head_.fill_kept(kept_, queries, keys);
      scale_elements(grad_scores_, keys.count, kept_);
    }
    differentiate_softmax(keys.count, all_keys);
    if (view_.dropout.active) {
      scale_elements(weights_, keys.count, kept_);
    }
    prefetch(next_, next_.of_keys(view_.v), next_.key_row, next_.keys);
    if (!scores_are_plain()) {
      differentiate_scores(queries, keys);
    }
  }

  /// The scores are inner products and nothing else wants their gradients.
  bool scores_are_plain() const {
    return view_.score == ScoreKind::dot_product && view_.soft_cap == 0 && !rows_.shared.bias.partial;
  }

  kernels::AdditiveOperands<float> additive(float unit) const {
    return kernels::additive_operands(head_, q_transposed_, k_, unit);
  }

  /// Adds the gradient of the bias. Then scores' gradients become the gradients of inner products, times scale, or of
  /// additive scores before the cap.
  void differentiate_scores(Block queries, Block keys) {
    if (rows_.shared.bias.partial) {
      kernels::add_bias_gradient(head_, queries, keys, grad_scores_, rows_.shared.bias.of(item()));
    }
    if (view_.soft_cap > 0) {
      scale_elements(grad_scores_, keys.count, slopes_);
    }
    for (std::int64_t i = 0; i < keys.count * grad_scores_.stride; i += lanes::width) {
      lanes::store(view_.query_scale() * lanes::load(grad_scores_.data + i), grad_scores_.data + i);
    }
  }

  /// Computes weights and scores' gradients (times scale, if scores are plain) from scores and weights' gradients.
  /// `all_keys`: the block holds every key, so that delta = Σ weight * grad_weight.
  void differentiate_softmax(std::int64_t keys, bool all_keys) {
    std::int64_t const stride = weights_.stride;
    float const scale = scores_are_plain() ? view_.scale : 1;
    for (std::int64_t v = 0; v < stride / lanes::width; ++v) {
      float* const weights = weights_.data + v * lanes::width;
      float* const grads = grad_scores_.data + v * lanes::width;
      Floats const normalizer = log_sum_exp_[v];
      Floats total = {};
      for (std::int64_t j = 0; j < keys; ++j) {
        Floats const weight = lanes::exp2_of_negative(lanes::load(weights + j * stride) - normalizer);
        total += weight * lanes::load(grads + j * stride);
        lanes::store(weight, weights + j * stride);
      }
      Floats const delta = all_keys ? total : delta_[v];
      for (std::int64_t j = 0; j < keys; ++j) {
        float* const grad = grads + j * stride;
        lanes::store(scale * lanes::load(weights + j * stride) * (lanes::load(grad) - delta), grad);
      }
    }
  }

  /// Adds the contributions of a block of queries and a block of keys to the gradients of both.
  template <class To>
  void give(Block queries, Block keys, To const& grad_q, To const& grad_k, To const& grad_v) {
    constexpr std::int64_t together = group_vectors<Element>;
    using Product = lanes::Product<float>;
    lanes::multiply<together>(Product{weights_.plain(), grad_output_, queries.count}, keys.count, stride_, grad_v);
    prefetch(next_, rows_.grad_output, next_.query_row, next_.queries);
    lanes::multiply<together>(Product{grad_scores_.plain(), q_, queries.count}, keys.count, stride_, grad_k);
    prefetch(next_, rows_.grad_q, next_.query_row, next_.queries);
    lanes::multiply<together>(Product{grad_scores_.transposed(), k_, keys.count}, queries.count, stride_, grad_q);
    prefetch(next_, next_.of_keys(rows_.grad_k), next_.key_row, next_.keys);
    prefetch(next_, next_.of_keys(rows_.grad_v), next_.key_row, next_.keys);
  }

  /// Adds the contributions of a block of queries and a block of keys with additive scores, in tiles.
  void give_additive(Block queries, Block keys, Tile<float> grad_q) {
    lanes::multiply<group_vectors<Element>>(lanes::Product<float>{weights_.plain(), grad_output_, queries.count},
                                            keys.count, stride_, ToTile{grad_v_});
    kernels::add_additive_gradients<WidenedOrder<Element>>(additive(1), {keys.count, grad_scores_.stride}, grad_scores_,
                                                           queries.count,
                                                           {grad_q, grad_k_, rows_.shared.score_weight.of(item())});
  }

  Head<Element> head_;
  Head<Element> const& next_;
  kernels::AttentionView<Element> const& view_;
  AllBackwardRows<Element> const& rows_;
  std::int64_t stride_;
  Tile<float> q_, grad_output_;                        ///< [queries, head_dim]
  Tile<float> k_;                                      ///< [keys, head_dim]
  Tile<float> q_transposed_, grad_output_transposed_;  ///< [units of head_dim, queries]
  Tile<float> weights_, grad_scores_, kept_, slopes_;  ///< [keys, queries]
  Tile<float> spare_;                                  ///< [keys, head_dim]
  Tile<float> grad_k_, grad_v_;                        ///< [keys, head_dim]
  Tile<float> grad_q_;                                 ///< [heads * all queries of the sequence, head_dim]
  Floats log_sum_exp_[block_vectors];
  Floats delta_[block_vectors];
};

/// Attention::backward for calls of `Element`.
template <class Element>
void backward(Execution& execution, AttentionCall const& call, Tensor const& output, Tensor const& log_sum_exp,
              Tensor const& grad_output, AttentionGradients const& gradients) {
  kernels::AttentionView<Element> const view(call);
  ArenaScope const scope(execution.scratch);
  AllBackwardRows<Element> const rows{{output, log_sum_exp, grad_output, gradients},
                                      {execution.scratch, gradients, view.count}};
  auto const work = [=](std::int64_t item, Scratch scratch) {
    Head<Element> const head = head_at(view, item * view.sharing);
    Head<Element> const next = head_at(view, (item + 1) * view.sharing);
    BackwardHeads<Element>(head, next, rows, scratch).run();
  };
  kernels::for_each_with_scratch<float>(execution, "simd attention backward", view.count * view.heads / view.sharing,
                                        BackwardHeads<Element>::scratch_elements(view, call.queries.max_length), work);
  rows.shared.add_to(execution, gradients, view.count);
}

}  // namespace
}  // namespace heddle::simd_attention
