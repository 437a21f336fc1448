#include <heddle/core/operations/kernel_author.hpp>

#include "linear.hpp"
#include "scores.hpp"
#include "support/factories.hpp"

namespace heddle {
namespace {

using kernels::AllBackwardRows;
using kernels::attention_block;
using kernels::Block;
using kernels::Rows;
using kernels::Tile;

/// The running softmax of a block of queries: after each block of keys, sum = Σ exp(score - maximum) over the keys so
/// far. Without normalization scores are weights already: the sum is 1, and nothing changes.
template <class Real>
struct OnlineSoftmax {
  Real maximum[attention_block];
  Real sum[attention_block];
  Real correction[attention_block];
  bool normalized;

  KOKKOS_INLINE_FUNCTION explicit OnlineSoftmax(bool normalizes) : normalized(normalizes) {
    for (std::int64_t i = 0; i < attention_block; ++i) {
      maximum[i] = normalized ? -std::numeric_limits<Real>::infinity() : Real{0};
      sum[i] = normalized ? 0 : 1;
      correction[i] = 1;
    }
  }

  /// The state of query i after keys whose weights had this normaliser.
  KOKKOS_INLINE_FUNCTION void resume(std::int64_t i, Real log_sum_exp) {
    if (!normalized) {
      return;
    }
    maximum[i] = log_sum_exp;
    sum[i] = log_sum_exp == -std::numeric_limits<Real>::infinity() ? Real{0} : Real{1};
  }

  /// Replaces scores by exp(score - maximum) and sets `correction`, the factor for the earlier sums.
  KOKKOS_INLINE_FUNCTION void take(Tile<Real> scores, std::int64_t keys, std::int64_t queries) {
    if (!normalized) {
      return;
    }
    Real shift[attention_block];
    for (std::int64_t i = 0; i < queries; ++i) {
      shift[i] = maximum[i];
    }
    for (std::int64_t j = 0; j < keys; ++j) {
      Real const* const score = scores[j];
      for (std::int64_t i = 0; i < queries; ++i) {
        shift[i] = score[i] > shift[i] ? score[i] : shift[i];
      }
    }
    for (std::int64_t i = 0; i < queries; ++i) {
      Real const old = maximum[i];
      maximum[i] = shift[i];
      shift[i] = shift[i] == -std::numeric_limits<Real>::infinity() ? Real{0} : shift[i];
      correction[i] = fast_exp(old - shift[i]);
      sum[i] *= correction[i];
    }
    for (std::int64_t j = 0; j < keys; ++j) {
      Real* const score = scores[j];
      for (std::int64_t i = 0; i < queries; ++i) {
        score[i] = fast_exp(score[i] - shift[i]);
        sum[i] += score[i];
      }
    }
  }
};

/// scores [keys, queries] of the pairs that see each other, -infinity elsewhere; weights, and 0 elsewhere, where a
/// function gives these. `q_transposed` is scaled by query_scale. `slopes`: the derivatives of the cap or of the
/// function, where there is one and they are wanted.
template <class Element, class Real = kernels::ArithmeticType<Element>>
KOKKOS_INLINE_FUNCTION void score(kernels::AttentionHead<Element> const& head, Block queries, Block keys, Tile<Real> k,
                                  Tile<Real> q_transposed, Tile<Real> scores, Tile<Real> slopes) {
  auto const& view = head.view;
  kernels::ScoreExtents const extents{keys.count, kernels::round_up(queries.count, kernels::tile_columns)};
  if (view.is_additive()) {
    kernels::additive_scores<kernels::PlainOrder>(kernels::additive_operands(head, q_transposed, k, Real{1}), extents,
                                                  scores);
  } else {
    kernels::multiply<false>(k.plain(), q_transposed, scores, {keys.count, queries.count, view.head_dim});
  }
  if (view.soft_cap > 0) {
    kernels::cap_scores(scores, extents, view.soft_cap);
    if (slopes.data != nullptr) {
      kernels::cap_slopes(scores, extents, view.soft_cap, slopes);
    }
  }
  if (view.bias) {
    kernels::add_bias(head, queries, keys, Real{1}, scores);
  }
  if (view.function) {
    kernels::apply_function(view.function, extents, scores, slopes);
  }
  if (view.normalized) {
    head.hide_unseen(queries, keys, scores);
  } else {
    head.hide_unseen(queries, keys, scores, Real{0});
  }
  if (view.function && slopes.data != nullptr) {  // a function's slope may be infinite there
    head.hide_unseen(queries, keys, slopes, Real{0});
  }
}

/// weights *= factors, element by element.
template <class Real>
KOKKOS_INLINE_FUNCTION void multiply_elements(Tile<Real> weights, Tile<Real> factors, std::int64_t rows,
                                              std::int64_t columns) {
  for (std::int64_t j = 0; j < rows; ++j) {
    for (std::int64_t i = 0; i < columns; ++i) {
      weights[j][i] *= factors[j][i];
    }
  }
}

/// The output of one block of queries of one head of one sequence.
template <class Element, class Real = kernels::ArithmeticType<Element>>
KOKKOS_INLINE_FUNCTION void forward_block(kernels::AttentionHead<Element> const& head, Block queries,
                                          Rows<Element> output, Rows<Real> log_sum_exp, kernels::Scratch<Real> scratch,
                                          std::int64_t stride) {
  auto const q_transposed = scratch.tile(head.view.head_dim, attention_block);
  auto const k = scratch.tile(attention_block, stride);
  auto const v = scratch.tile(attention_block, stride);
  auto const scores = scratch.tile(attention_block, attention_block);
  auto const kept = scratch.tile(attention_block, attention_block);
  auto const sums = scratch.tile(attention_block, stride);
  std::int64_t const lanes = kernels::round_up(queries.count, kernels::tile_columns);
  std::int64_t const first_row = head.query_row + queries.begin;

  head.load(head.view.q, first_row, queries.count, sums, head.view.query_scale());
  head.transpose(sums, queries.count, q_transposed);
  for (std::int64_t i = 0; i < lanes * stride; ++i) {
    sums.data[i] = 0;
  }
  OnlineSoftmax<Real> softmax(head.view.normalized);
  if (head.view.accumulate) {
    head.load(output, first_row, queries.count, sums);
    for (std::int64_t i = 0; i < queries.count; ++i) {
      softmax.resume(i, log_sum_exp[first_row + i][head.head]);
    }
  }
  Block const visible = head.visible_keys(queries);
  std::int64_t const first_key = visible.begin / attention_block * attention_block;
  bool begun = head.view.accumulate;
  for (std::int64_t begin = first_key; begin < visible.end(); begin += attention_block) {
    Block const keys = kernels::block_at(begin, head.keys);
    if (!head.see(queries, keys)) {
      continue;
    }
    head.load(head.of_keys(head.view.k), head.key_row + begin, keys.count, k);
    head.load(head.of_keys(head.view.v), head.key_row + begin, keys.count, v);
    score(head, queries, keys, k, q_transposed, scores, Tile<Real>{});
    softmax.take(scores, keys.count, lanes);
    if (head.view.dropout.active) {
      head.fill_kept(kept, queries, keys);
      multiply_elements(scores, kept, keys.count, lanes);
    }
    for (std::int64_t i = 0; begun && i < queries.count; ++i) {
      for (std::int64_t d = 0; d < stride; ++d) {
        sums[i][d] *= softmax.correction[i];
      }
    }
    begun = true;
    kernels::multiply<true>(scores.transposed(), v, sums, {queries.count, head.view.head_dim, keys.count});
  }
  for (std::int64_t i = 0; i < queries.count; ++i) {
    Real const factor = softmax.sum[i] > 0 ? 1 / softmax.sum[i] : Real{0};
    Element* const to = head.at(output, first_row + i);
    for (std::int64_t d = 0; d < head.view.head_dim; ++d) {
      to[d] = static_cast<Element>(sums[i][d] * factor);
    }
    log_sum_exp[first_row + i][head.head] =
        softmax.sum[i] > 0 ? softmax.maximum[i] + std::log(softmax.sum[i]) : softmax.maximum[i];
  }
}

template <class Element>
void run_forward(Execution& execution, AttentionCall const& call, Tensor const& output, Tensor const& log_sum_exp) {
  using Real = kernels::ArithmeticType<Element>;
  kernels::AttentionView<Element> const view(call);
  auto const out = kernels::rows_of<Element>(output);
  auto const statistics = kernels::rows_of<Real>(log_sum_exp);
  std::int64_t const stride = view.stride();
  std::int64_t const elements =
      attention_block * (kernels::round_up(view.head_dim, kernels::tile_columns) + 3 * stride + 2 * attention_block);
  kernels::for_each_with_scratch<Real>(
      execution, "attention forward", view.count * view.heads * view.query_blocks, elements,
      KOKKOS_LAMBDA(std::int64_t item, kernels::Scratch<Real> scratch) {
        std::int64_t const of_head = item / view.query_blocks;
        kernels::AttentionHead<Element> const head(view, of_head / view.heads, of_head % view.heads);
        std::int64_t const begin = item % view.query_blocks * attention_block;
        if (begin < head.queries) {
          Block const block = kernels::block_at(begin, head.queries);
          if (!view.accumulate || head.visible_keys(block).count > 0) {
            forward_block(head, block, out, statistics, scratch, stride);
          }
        }
      });
}

/// The tiles of a work item of the backward pass. Transposed ones are [head_dim, queries].
template <class Real>
struct BackwardTiles {
  Tile<Real> k, v, grad_k, grad_v;                  ///< [keys, head_dim]
  Tile<Real> q, grad_output;                        ///< [queries, head_dim]; q is scaled
  Tile<Real> q_transposed, grad_output_transposed;  ///< [head_dim, queries]
  Tile<Real> weights, grad_scores, kept, slopes;    ///< [keys, queries]
  Tile<Real> grad_q;  ///< [all queries of the sequence, head_dim], of each head that shares the keys
  Real log_sum_exp[attention_block];
  Real delta[attention_block];
  Real* grad_bias = nullptr;  ///< of the head, where it is wanted
  Real* grad_score_weight = nullptr;

  KOKKOS_INLINE_FUNCTION BackwardTiles(kernels::Scratch<Real> scratch, std::int64_t head_dim, std::int64_t stride)
      : k(scratch.tile(attention_block, stride)),
        v(scratch.tile(attention_block, stride)),
        grad_k(scratch.tile(attention_block, stride)),
        grad_v(scratch.tile(attention_block, stride)),
        q(scratch.tile(attention_block, stride)),
        grad_output(scratch.tile(attention_block, stride)),
        q_transposed(scratch.tile(head_dim, attention_block)),
        grad_output_transposed(scratch.tile(head_dim, attention_block)),
        weights(scratch.tile(attention_block, attention_block)),
        grad_scores(scratch.tile(attention_block, attention_block)),
        kept(scratch.tile(attention_block, attention_block)),
        slopes(scratch.tile(attention_block, attention_block)),
        grad_q{scratch.next, stride} {}

  static std::int64_t elements(std::int64_t stride, std::int64_t query_blocks) {
    return attention_block * ((8 + query_blocks) * stride + 4 * attention_block);
  }
};

template <class Element, class Real = kernels::ArithmeticType<Element>>
KOKKOS_INLINE_FUNCTION void load_queries(kernels::AttentionHead<Element> const& head, Block queries,
                                         AllBackwardRows<Element> const& rows, BackwardTiles<Real>& tiles) {
  std::int64_t const first_row = head.query_row + queries.begin;
  head.load(head.view.q, first_row, queries.count, tiles.q, head.view.query_scale());
  head.load(rows.grad_output, first_row, queries.count, tiles.grad_output);
  head.transpose(tiles.q, queries.count, tiles.q_transposed);
  head.transpose(tiles.grad_output, queries.count, tiles.grad_output_transposed);
  for (std::int64_t i = 0; i < kernels::round_up(queries.count, kernels::tile_columns); ++i) {
    // A row without visible keys, or beyond the queries, has no weights: exp(score - infinity).
    tiles.log_sum_exp[i] = std::numeric_limits<Real>::infinity();
    tiles.delta[i] = 0;
    if (i < queries.count) {
      Real const normalizer = rows.log_sum_exp[first_row + i][head.head];
      tiles.log_sum_exp[i] = normalizer == -std::numeric_limits<Real>::infinity() ? -normalizer : normalizer;
      Element const* const output = head.at(rows.output, first_row + i);
      Real const* const grad = tiles.grad_output[i];
      Real sum = 0;
      for (std::int64_t d = 0; d < head.view.head_dim; ++d) {
        sum += grad[d] * static_cast<Real>(output[d]);
      }
      tiles.delta[i] = sum;
    }
  }
}

/// Computes the dropped-out weights and the scores' gradients from the scores and grad_weights (in grad_scores). With
/// weights that a function gives, these are what it is given in place of scores.
template <class Element, class Real = kernels::ArithmeticType<Element>>
KOKKOS_INLINE_FUNCTION void differentiate_softmax(kernels::AttentionHead<Element> const& head, Block queries,
                                                  Block keys, BackwardTiles<Real> const& tiles) {
  std::int64_t const lanes = kernels::round_up(queries.count, kernels::tile_columns);
  bool const dropout = head.view.dropout.active;
  if (dropout) {
    head.fill_kept(tiles.kept, queries, keys);
  }
  for (std::int64_t j = 0; j < keys.count; ++j) {
    Real* const weight = tiles.weights[j];
    Real* const grad = tiles.grad_scores[j];
    Real const* const kept = tiles.kept[j];
    if (!head.view.normalized) {
      for (std::int64_t i = 0; dropout && i < lanes; ++i) {
        grad[i] *= kept[i];
        weight[i] *= kept[i];
      }
      continue;
    }
    for (std::int64_t i = 0; i < lanes; ++i) {
      weight[i] = fast_exp(weight[i] - tiles.log_sum_exp[i]);
    }
    if (dropout) {
      for (std::int64_t i = 0; i < lanes; ++i) {
        grad[i] = weight[i] * (grad[i] * kept[i] - tiles.delta[i]);
        weight[i] *= kept[i];
      }
    } else {
      for (std::int64_t i = 0; i < lanes; ++i) {
        grad[i] = weight[i] * (grad[i] - tiles.delta[i]);
      }
    }
  }
}

/// Adds the contributions of the scores' gradients to the gradients of queries, keys and the scores' parameters.
template <class Element, class Real = kernels::ArithmeticType<Element>>
KOKKOS_INLINE_FUNCTION void differentiate_scores(kernels::AttentionHead<Element> const& head, Block queries, Block keys,
                                                 BackwardTiles<Real> const& tiles) {
  std::int64_t const head_dim = head.view.head_dim;
  kernels::ScoreExtents const extents{keys.count, kernels::round_up(queries.count, kernels::tile_columns)};
  if (head.view.function) {
    multiply_elements(tiles.grad_scores, tiles.slopes, extents.keys, extents.columns);
  }
  if (tiles.grad_bias != nullptr) {
    kernels::add_bias_gradient(head, queries, keys, tiles.grad_scores, tiles.grad_bias);
  }
  if (head.view.soft_cap > 0) {
    multiply_elements(tiles.grad_scores, tiles.slopes, extents.keys, extents.columns);
  }
  Tile<Real> const grad_q{tiles.grad_q[queries.begin], tiles.grad_q.stride};
  if (head.view.is_additive()) {
    kernels::add_additive_gradients<kernels::PlainOrder>(
        kernels::additive_operands(head, tiles.q_transposed, tiles.k, Real{1}), extents, tiles.grad_scores,
        queries.count, {grad_q, tiles.grad_k, tiles.grad_score_weight});
    return;
  }
  kernels::multiply<true>(tiles.grad_scores.plain(), tiles.q, tiles.grad_k, {keys.count, head_dim, queries.count});
  kernels::multiply<true>(tiles.grad_scores.transposed(), tiles.k, grad_q, {queries.count, head_dim, keys.count});
}

/// Adds the contributions of a block of queries and a block of keys to the gradients of both.
template <class Element, class Real = kernels::ArithmeticType<Element>>
KOKKOS_INLINE_FUNCTION void backward_blocks(kernels::AttentionHead<Element> const& head, Block queries, Block keys,
                                            AllBackwardRows<Element> const& rows, BackwardTiles<Real>& tiles) {
  std::int64_t const head_dim = head.view.head_dim;
  load_queries(head, queries, rows, tiles);
  score(head, queries, keys, tiles.k, tiles.q_transposed, tiles.weights, tiles.slopes);
  kernels::multiply<false>(tiles.v.plain(), tiles.grad_output_transposed, tiles.grad_scores,
                           {keys.count, queries.count, head_dim});
  differentiate_softmax(head, queries, keys, tiles);
  kernels::multiply<true>(tiles.weights.plain(), tiles.grad_output, tiles.grad_v,
                          {keys.count, head_dim, queries.count});
  differentiate_scores(head, queries, keys, tiles);
}

template <class Real>
KOKKOS_INLINE_FUNCTION void set_zero(Tile<Real> tile, std::int64_t rows) {
  for (std::int64_t i = 0; i < kernels::round_up(rows, kernels::tile_rows) * tile.stride; ++i) {
    tile.data[i] = 0;
  }
}

/// Computes all gradients of the heads of one sequence that share a head of keys, starting at `first`. The queries'
/// gradients are summed in scratch over the blocks of keys.
template <class Element, class Real = kernels::ArithmeticType<Element>>
KOKKOS_INLINE_FUNCTION void backward_heads(kernels::AttentionHead<Element> const& first,
                                           AllBackwardRows<Element> const& rows, kernels::Scratch<Real> scratch,
                                           std::int64_t stride) {
  using Head = kernels::AttentionHead<Element>;
  BackwardTiles<Real> tiles(scratch, first.view.head_dim, stride);
  Tile<Real> const all_grad_q = tiles.grad_q;
  std::int64_t const head_rows = first.view.query_blocks * attention_block;
  std::int64_t const sharing = first.view.sharing;
  std::int64_t const first_item = first.sequence * first.view.heads + first.head;
  for (std::int64_t i = 0; i < sharing; ++i) {
    set_zero(Tile<Real>{all_grad_q[i * head_rows], stride}, first.queries);
    rows.shared.bias.begin(first_item + i);
    rows.shared.score_weight.begin(first_item + i);
  }
  for (std::int64_t key_begin = 0; key_begin < first.keys; key_begin += attention_block) {
    Block const keys = kernels::block_at(key_begin, first.keys);
    first.load(first.of_keys(first.view.k), first.key_row + key_begin, keys.count, tiles.k);
    first.load(first.of_keys(first.view.v), first.key_row + key_begin, keys.count, tiles.v);
    set_zero(tiles.grad_k, keys.count);
    set_zero(tiles.grad_v, keys.count);
    for (std::int64_t i = 0; i < sharing; ++i) {
      Head const head = first.neighbour(i);
      tiles.grad_q = {all_grad_q[i * head_rows], stride};
      tiles.grad_bias = rows.shared.bias.of(first_item + i);
      tiles.grad_score_weight = rows.shared.score_weight.of(first_item + i);
      for (std::int64_t begin = 0; begin < head.queries; begin += attention_block) {
        Block const queries = kernels::block_at(begin, head.queries);
        if (head.see(queries, keys)) {
          backward_blocks(head, queries, keys, rows, tiles);
        }
      }
    }
    first.store(tiles.grad_k, first.of_keys(rows.grad_k), first.key_row + key_begin, keys.count);
    first.store(tiles.grad_v, first.of_keys(rows.grad_v), first.key_row + key_begin, keys.count);
  }
  for (std::int64_t i = 0; i < sharing; ++i) {
    first.neighbour(i).store(Tile<Real>{all_grad_q[i * head_rows], stride}, rows.grad_q, first.query_row, first.queries,
                             first.view.query_scale());
  }
}

template <class Element>
void run_backward(Execution& execution, AttentionCall const& call, AllBackwardRows<Element> const& rows) {
  using Real = kernels::ArithmeticType<Element>;
  kernels::AttentionView<Element> const view(call);
  std::int64_t const stride = view.stride();
  std::int64_t const key_heads = view.heads / view.sharing;
  kernels::for_each_with_scratch<Real>(
      execution, "attention backward", view.count * key_heads,
      BackwardTiles<Real>::elements(stride, view.query_blocks * view.sharing),
      KOKKOS_LAMBDA(std::int64_t item, kernels::Scratch<Real> scratch) {
        kernels::AttentionHead<Element> const first(view, item / key_heads, item % key_heads * view.sharing);
        backward_heads(first, rows, scratch, stride);
      });
}

class KokkosAttention : public Attention {
 public:
  bool supports(AttentionProblem const& problem) const override {
    return CompiledTypes::contain(problem.dtype) && is_defined(problem);
  }
  void forward(Execution& execution, AttentionCall const& call, Tensor const& output,
               Tensor const& log_sum_exp) override {
    CompiledTypes::with(call.q.dtype(), [&]<class Element>(Element) {
      auto const& run = call.score == ScoreKind::linear ? kernels::linear_forward<Element> : run_forward<Element>;
      run(execution, call, output, log_sum_exp);
    });
  }
  void backward(Execution& execution, AttentionCall const& call, Tensor const& output, Tensor const& log_sum_exp,
                Tensor const& grad_output, AttentionGradients const& gradients) override {
    CompiledTypes::with(call.q.dtype(), [&]<class Element>(Element) {
      if (call.score == ScoreKind::linear) {
        return kernels::linear_backward<Element>(execution, call, {output, log_sum_exp, grad_output, gradients});
      }
      ArenaScope const scope(execution.scratch);
      AllBackwardRows<Element> const rows{{output, log_sum_exp, grad_output, gradients},
                                          {execution.scratch, gradients, call.queries.count}};
      run_backward<Element>(execution, call, rows);
      rows.shared.add_to(execution, gradients, call.queries.count);
    });
  }
};

}  // namespace

void add_portable_attention_kernels(KernelRegistries& registries) {
  registries.of<Attention>().add_part("kokkos", priorities::portable, std::make_shared<KokkosAttention>());
}

}  // namespace heddle
