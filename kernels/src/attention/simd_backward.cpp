#include "simd.hpp"

namespace heddle::simd_attention {
namespace {

/// Tensors that backward reads and writes beside the call.
template <class Element>
struct BackwardRows {
  Rows<Element> output, grad_output;
  Rows<Element> grad_q, grad_k, grad_v;
  Rows<float> log_sum_exp;
};

/// Adds a product's rows to those of a tile.
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

/// Computes all gradients of one head of one sequence, block of queries by block of keys.
template <class Element>
class BackwardHead {
 public:
  BackwardHead(Head<Element> const& head, Head<Element> const& next, BackwardRows<Element> const& rows, Scratch scratch)
      : head_(head), next_(next), view_(head.view), rows_(rows), stride_(tile_stride(head.view)) {
    std::int64_t const most_keys = block_rows(head.keys);
    std::int64_t const most_queries = block_rows(head.queries);
    std::int64_t const columns = round_up(most_queries, lanes::width);
    q_ = scratch.tile(most_queries, stride_);
    grad_output_ = scratch.tile(most_queries, stride_);
    k_ = scratch.tile(most_keys, stride_);
    q_transposed_ = scratch.tile(stride_, columns);
    grad_output_transposed_ = scratch.tile(stride_, columns);
    weights_ = scratch.tile(most_keys, columns);
    grad_scores_ = scratch.tile(most_keys, columns);
    kept_ = scratch.tile(round_up(most_keys, 8), columns);
    spare_ = scratch.tile(most_keys, stride_);
    grad_k_ = scratch.tile(most_keys, stride_);
    grad_v_ = scratch.tile(most_keys, stride_);
    grad_q_ = scratch.tile(head.queries, stride_);
  }

  static std::int64_t scratch_elements(std::int64_t stride, std::int64_t max_queries) {
    return attention_block * (8 * stride + 3 * attention_block) + round_up(max_queries, attention_block) * stride;
  }

  void run() {
    Block const queries = kernels::block_at(0, head_.queries);
    Block const keys = kernels::block_at(0, head_.keys);
    bool const one_block = queries.count == head_.queries && keys.count == head_.keys;
    if (one_block && keys.count > 0 && head_.visible_keys(queries).count > 0) {
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

  /// The queries' gradients are summed in scratch over the blocks of keys.
  void run_by_blocks() {
    set_zero(grad_q_, head_.queries);
    for (std::int64_t key_begin = 0; key_begin < head_.keys; key_begin += attention_block) {
      Block const keys = kernels::block_at(key_begin, head_.keys);
      std::int64_t const first_key = head_.key_row + key_begin;
      load(head_, view_.k, first_key, keys.count, k_);
      set_zero(grad_k_, keys.count);
      set_zero(grad_v_, keys.count);
      for (std::int64_t begin = 0; begin < head_.queries; begin += attention_block) {
        Block const queries = kernels::block_at(begin, head_.queries);
        if (head_.visible_keys(queries).overlaps(keys)) {
          differentiate(queries, keys);
          give(queries, keys, ToTile{{grad_q_[begin], stride_}}, ToTile{grad_k_}, ToTile{grad_v_});
        }
      }
      store(grad_k_, keys.count, to_rows(rows_.grad_k, first_key));
      store(grad_v_, keys.count, to_rows(rows_.grad_v, first_key));
    }
    store(grad_q_, head_.queries, to_rows(rows_.grad_q, head_.query_row));
  }

  void load_queries(Block queries) {
    std::int64_t const first_row = head_.query_row + queries.begin;
    for (auto* const tile : {&q_transposed_, &grad_output_transposed_, &weights_, &grad_scores_, &kept_}) {
      tile->stride = round_up(queries.count, lanes::width);
    }
    load(head_, view_.q, first_row, queries.count, q_);
    transpose(head_, view_.q, first_row, queries.count, q_transposed_);
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
    for (std::int64_t i = 0; i < queries.count; ++i, output += rows_.output.stride) {
      Floats products = {};
      for (std::int64_t d = 0; d < view_.head_dim; d += group<Element>) {
        float values[group<Element>];
        widen(load_group<Element>(output + d, view_.head_dim - d), values);
        for (std::int64_t lane = 0; lane < group<Element>; lane += lanes::width) {
          products += lanes::load(values + lane) * lanes::load(grad_output_[i] + d + lane);
        }
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
    inner_products(product_of(head_, view_.k, first_key, keys.count, spare_, q_transposed_), keys.count,
                   view_.scale * log2_e, weights_);
    hide_unseen(head_, queries, keys, weights_);
    prefetch(next_, view_.q, next_.query_row, next_.queries);
    inner_products(product_of(head_, view_.v, first_key, keys.count, spare_, grad_output_transposed_), keys.count, 1,
                   grad_scores_);
    prefetch(next_, view_.k, next_.key_row, next_.keys);
    if (view_.dropout.active) {
      head_.fill_kept(kept_, queries, keys);
      scale_elements(grad_scores_, keys.count, kept_);
    }
    differentiate_softmax(keys.count, all_keys);
    if (view_.dropout.active) {
      scale_elements(weights_, keys.count, kept_);
    }
    prefetch(next_, view_.v, next_.key_row, next_.keys);
  }

  /// Computes weights and scores' gradients, times scale, from scores and weights' gradients. `all_keys`: the block
  /// holds every key, so that delta = Σ weight * grad_weight.
  void differentiate_softmax(std::int64_t keys, bool all_keys) {
    std::int64_t const stride = weights_.stride;
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
        lanes::store(view_.scale * lanes::load(weights + j * stride) * (lanes::load(grad) - delta), grad);
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
    prefetch(next_, rows_.grad_k, next_.key_row, next_.keys);
    prefetch(next_, rows_.grad_v, next_.key_row, next_.keys);
  }

  Head<Element> const& head_;
  Head<Element> const& next_;
  kernels::AttentionView<Element> const& view_;
  BackwardRows<Element> const& rows_;
  std::int64_t stride_;
  Tile<float> q_, grad_output_;                        ///< [queries, head_dim]
  Tile<float> k_;                                      ///< [keys, head_dim]
  Tile<float> q_transposed_, grad_output_transposed_;  ///< [units of head_dim, queries]
  Tile<float> weights_, grad_scores_, kept_;           ///< [keys, queries]
  Tile<float> spare_;                                  ///< [keys, head_dim]
  Tile<float> grad_k_, grad_v_;                        ///< [keys, head_dim]
  Tile<float> grad_q_;                                 ///< [all queries of the sequence, head_dim]
  Floats log_sum_exp_[block_vectors];
  Floats delta_[block_vectors];
};

}  // namespace

template <class Element>
void backward(Execution& execution, AttentionCall const& call, Tensor const& output, Tensor const& log_sum_exp,
              Tensor const& grad_output, AttentionGradients const& gradients) {
  kernels::AttentionView<Element> const view(call);
  BackwardRows<Element> const rows{kernels::rows_of<Element>(output),      kernels::rows_of<Element>(grad_output),
                                   kernels::rows_of<Element>(gradients.q), kernels::rows_of<Element>(gradients.k),
                                   kernels::rows_of<Element>(gradients.v), kernels::rows_of<float>(log_sum_exp)};
  auto const work = [=](std::int64_t item, Scratch scratch) {
    Head<Element> const head = head_at(view, item);
    Head<Element> const next = head_at(view, item + 1);
    BackwardHead<Element>(head, next, rows, scratch).run();
  };
  kernels::for_each_with_scratch<float>(
      execution, "simd attention backward", view.count * view.heads,
      BackwardHead<Element>::scratch_elements(tile_stride(view), call.queries.max_length), work);
}

template void backward<float>(Execution&, AttentionCall const&, Tensor const&, Tensor const&, Tensor const&,
                              AttentionGradients const&);
template void backward<BFloat16>(Execution&, AttentionCall const&, Tensor const&, Tensor const&, Tensor const&,
                                 AttentionGradients const&);

}  // namespace heddle::simd_attention
