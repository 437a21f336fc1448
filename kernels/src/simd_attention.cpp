#include "attention_tiles.hpp"
#include "factories.hpp"
#include "lanes_multiply.hpp"

// Attention as on the host's vector units: the blocks of kokkos_attention.cpp, as large as the sequences are, in tiles
// that fit the first-level cache. Scores are held in units of ln 2, so that exponentials are powers of two.

namespace heddle {
namespace {

using lanes::Floats;
using parts::attention_block;
using parts::Block;
using parts::round_up;
using parts::Rows;
using parts::Tile;

constexpr float log2_e = 1.44269504F;
constexpr float ln_2 = 0.693147181F;
constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr std::int64_t block_vectors = attention_block / lanes::width;

template <class Element>
using Head = parts::AttentionHead<Element>;
using Scratch = parts::Scratch<float>;

/// The call's heads one after another; the last one for what lies beyond them.
template <class Element>
Head<Element> head_at(parts::AttentionView<Element> const& view, std::int64_t item) {
  std::int64_t const last = view.count * view.heads - 1;
  std::int64_t const bounded = item < last ? item : last;
  return {view, bounded / view.heads, bounded % view.heads};
}

std::int64_t block_rows(std::int64_t length) {
  return length < attention_block ? length : attention_block;
}

/// tile [count, head_dim] = rows first … first + count of this head, zero beyond head_dim.
template <class Element>
void load(Head<Element> const& head, Rows<Element> const& rows, std::int64_t first, std::int64_t count,
          Tile<float> tile) {
  std::int64_t const head_dim = head.view.head_dim;
  Element const* from = head.at(rows, first);
  std::int64_t const from_stride = rows.stride;
  for (float* to = tile.data; to < tile[count]; to += tile.stride) {
    for (std::int64_t d = 0; d < head_dim; d += lanes::width) {
      lanes::store(lanes::load(from + d, head_dim - d), to + d);
    }
    from += from_stride;
  }
}

/// Asks the second-level cache for a short sequence's rows of this head before they are needed: they are too few for
/// the machine's own prefetching, and waiting for them would cost as much as computing with them.
template <class Element>
void prefetch(Head<Element> const& head, Rows<Element> const& rows, std::int64_t first, std::int64_t count) {
  constexpr std::int64_t line = 64 / sizeof(Element);
  std::int64_t const ahead = count > attention_block ? 0 : count;
  for (std::int64_t i = 0; i < ahead; ++i) {
    for (std::int64_t d = 0; d < head.view.head_dim; d += line) {
      __builtin_prefetch(head.at(rows, first + i) + d, 0, 2);
    }
  }
}

/// Rows first … first + count of this head = the tile, or += it where the call accumulates.
template <class Element>
void store(Head<Element> const& head, Tile<float> tile, Rows<Element> const& rows, std::int64_t first,
           std::int64_t count) {
  std::int64_t const head_dim = head.view.head_dim;
  bool const accumulate = head.view.accumulate;
  Element* to = head.at(rows, first);
  for (std::int64_t i = 0; i < count; ++i, to += rows.stride) {
    for (std::int64_t d = 0; d < head_dim; d += lanes::width) {
      Floats const value = lanes::load(tile[i] + d);
      lanes::store(accumulate ? lanes::load(to + d, head_dim - d) + value : value, to + d, head_dim - d);
    }
  }
}

/// to [head_dim, count] = scale * `count` rows transposed, zero beyond them up to the next whole vector.
template <class Element>
void transpose(Rows<Element const> from, std::int64_t count, std::int64_t head_dim, float scale, Tile<float> to) {
  for (std::int64_t begin = 0; begin < count; begin += lanes::width) {
    std::int64_t const rows = count - begin < lanes::width ? count - begin : lanes::width;
    for (std::int64_t d = 0; d < head_dim; d += lanes::width) {
      Floats block[lanes::width] = {};
      for (std::int64_t i = 0; i < rows; ++i) {
        block[i] = scale * lanes::load(from[begin + i] + d, head_dim - d);
      }
      lanes::transpose(block);
      for (std::int64_t i = 0; i < lanes::width; ++i) {
        lanes::store(block[i], to[d + i] + begin);
      }
    }
  }
}

/// scores [keys, queries] = k qᵀ, -infinity where the query does not see the key.
template <class Element>
void score(Head<Element> const& head, Tile<float> k, Tile<float> q_transposed, Tile<float> scores, Block queries,
           Block keys) {
  lanes::multiply({k.plain(), q_transposed, scores, head.view.head_dim}, keys.count, scores.stride);
  for (std::int64_t j = 0; head.view.causal && j < keys.count; ++j) {
    std::int64_t const hidden = head.first_seeing(keys.begin + j, queries);
    for (std::int64_t i = 0; i < hidden; i += lanes::width) {
      float* const at = scores[j] + i;
      lanes::store(lanes::indices() < static_cast<std::int32_t>(hidden - i) ? lanes::all(-infinity) : lanes::load(at),
                   at);
    }
  }
}

/// The running softmax of a block of queries: after each block of keys, sum = Σ 2^(score - maximum) over the keys so
/// far.
struct OnlineSoftmax {
  Floats maximum[block_vectors];
  Floats sum[block_vectors];
  Floats correction[block_vectors];  ///< for what was summed up before the last block of keys

  OnlineSoftmax() {
    for (std::int64_t v = 0; v < block_vectors; ++v) {
      maximum[v] = lanes::all(-infinity);
      sum[v] = Floats{};
    }
  }

  /// The state of query i after keys whose weights had this normaliser.
  void resume(std::int64_t i, float log_sum_exp) {
    maximum[i / lanes::width][i % lanes::width] = log_sum_exp * log2_e;
    sum[i / lanes::width][i % lanes::width] = log_sum_exp == -infinity ? 0.0F : 1.0F;
  }

  /// Replaces scores by 2^(score - maximum).
  void take(Tile<float> scores, std::int64_t keys) {
    for (std::int64_t v = 0; v < scores.stride / lanes::width; ++v) {
      float* const first = scores.data + v * lanes::width;
      Floats highest = maximum[v];
      for (std::int64_t j = 0; j < keys; ++j) {
        highest = lanes::maximum(highest, lanes::load(first + j * scores.stride));
      }
      Floats const shift = highest == -infinity ? Floats{} : highest;
      correction[v] = lanes::exp2_of_negative(maximum[v] - shift);
      maximum[v] = highest;
      Floats total = sum[v] * correction[v];
      for (std::int64_t j = 0; j < keys; ++j) {
        float* const at = first + j * scores.stride;
        Floats const weight = lanes::exp2_of_negative(lanes::load(at) - shift);
        total += weight;
        lanes::store(weight, at);
      }
      sum[v] = total;
    }
  }

  Floats inverse_sum(std::int64_t v) const { return sum[v] > 0.0F ? 1.0F / sum[v] : Floats{}; }
  Floats log_sum_exp(std::int64_t v) const {
    return sum[v] > 0.0F ? ln_2 * maximum[v] + lanes::log_of_positive(sum[v]) : maximum[v];
  }
};

/// tile[i] *= factors[i]
void scale_rows(Tile<float> tile, std::int64_t rows, Floats const* factors) {
  for (std::int64_t i = 0; i < rows; ++i) {
    float const factor = factors[i / lanes::width][i % lanes::width];
    for (std::int64_t d = 0; d < tile.stride; d += lanes::width) {
      lanes::store(factor * lanes::load(tile[i] + d), tile[i] + d);
    }
  }
}

void set_zero(Tile<float> tile, std::int64_t rows) {
  for (std::int64_t i = 0; i < rows * tile.stride; i += lanes::width) {
    lanes::store(Floats{}, tile.data + i);
  }
}

/// tile *= factors, both [rows, tile.stride].
void scale_elements(Tile<float> tile, std::int64_t rows, Tile<float> factors) {
  for (std::int64_t i = 0; i < rows * tile.stride; i += lanes::width) {
    lanes::store(lanes::load(tile.data + i) * lanes::load(factors.data + i), tile.data + i);
  }
}

/// The output of one block of queries of one head of one sequence.
template <class Element>
void forward_block(Head<Element> const& head, Head<Element> const& next, Block queries, Rows<Element> output,
                   Rows<float> log_sum_exp, Scratch scratch) {
  auto const& view = head.view;
  std::int64_t const head_dim = view.head_dim;
  std::int64_t const stride = view.stride();
  std::int64_t const columns = round_up(queries.count, lanes::width);
  std::int64_t const most_keys = block_rows(head.keys);
  std::int64_t const first_row = head.query_row + queries.begin;
  auto const q_transposed = scratch.tile(stride, columns);
  auto const k = scratch.tile(most_keys, stride);
  auto const v = scratch.tile(most_keys, stride);
  auto const scores = scratch.tile(most_keys, columns);
  auto const sums = scratch.tile(queries.count, stride);
  auto const kept = scratch.tile(round_up(most_keys, 8), columns);

  transpose(Rows<Element const>{head.at(view.q, first_row), view.q.stride}, queries.count, view.head_dim,
            view.scale * log2_e, q_transposed);
  prefetch(next, view.q, next.query_row, next.queries);
  OnlineSoftmax softmax;
  bool begun = view.accumulate;
  if (begun) {
    load(head, output, first_row, queries.count, sums);
    for (std::int64_t i = 0; i < queries.count; ++i) {
      softmax.resume(i, log_sum_exp[first_row + i][head.head]);
    }
  }
  for (std::int64_t begin = 0; begin < head.keys && head.seen(begin, queries); begin += attention_block) {
    Block const keys = parts::block_at(begin, head.keys);
    load(head, view.k, head.key_row + begin, keys.count, k);
    load(head, view.v, head.key_row + begin, keys.count, v);
    score(head, k, q_transposed, scores, queries, keys);
    prefetch(next, view.k, next.key_row, next.keys);
    softmax.take(scores, keys.count);
    prefetch(next, view.v, next.key_row, next.keys);
    if (view.dropout.active) {
      head.fill_kept(kept, queries, keys);
      scale_elements(scores, keys.count, kept);
    }
    if (begun) {
      scale_rows(sums, queries.count, softmax.correction);
    }
    lanes::multiply({scores.transposed(), v, sums, keys.count, begun}, queries.count, stride);
    begun = true;
  }
  prefetch(next, output, next.query_row, next.queries);
  Floats inverse[block_vectors];
  for (std::int64_t i = 0; i < queries.count; i += lanes::width) {
    std::int64_t const vector = i / lanes::width;
    inverse[vector] = softmax.inverse_sum(vector);
    Floats const normalizer = softmax.log_sum_exp(vector);
    for (std::int64_t lane = 0; lane < lanes::width && i + lane < queries.count; ++lane) {
      log_sum_exp[first_row + i + lane][head.head] = normalizer[lane];
    }
  }
  if (!begun) {
    set_zero(sums, queries.count);  // no keys
  }
  Element* to = head.at(output, first_row);
  for (std::int64_t i = 0; i < queries.count; ++i, to += output.stride) {
    float const factor = inverse[i / lanes::width][i % lanes::width];
    for (std::int64_t d = 0; d < stride; d += lanes::width) {
      lanes::store(factor * lanes::load(sums[i] + d), to + d, head_dim - d);
    }
  }
}

/// What backward reads and writes beside the call.
template <class Element>
struct BackwardRows {
  Rows<Element> output, grad_output;
  Rows<Element> grad_q, grad_k, grad_v;
  Rows<float> log_sum_exp;
};

/// The tiles of one head, as large as its sequence needs them. Transposed ones are [head_dim, queries].
struct BackwardTiles {
  Tile<float> k, v, grad_k, grad_v;                  ///< [keys, head_dim]
  Tile<float> q, grad_output;                        ///< [queries, head_dim]
  Tile<float> q_transposed, grad_output_transposed;  ///< [head_dim, queries]
  Tile<float> weights, grad_scores, kept;            ///< [keys, queries]
  Tile<float> grad_q;                                ///< [all queries of the sequence, head_dim]
  Floats log_sum_exp[block_vectors];
  Floats delta[block_vectors];

  BackwardTiles(Scratch scratch, std::int64_t stride, std::int64_t queries, std::int64_t keys)
      : k(scratch.tile(block_rows(keys), stride)),
        v(scratch.tile(block_rows(keys), stride)),
        grad_k(scratch.tile(block_rows(keys), stride)),
        grad_v(scratch.tile(block_rows(keys), stride)),
        q(scratch.tile(block_rows(queries), stride)),
        grad_output(scratch.tile(block_rows(queries), stride)),
        q_transposed(scratch.tile(stride, round_up(block_rows(queries), lanes::width))),
        grad_output_transposed(scratch.tile(stride, q_transposed.stride)),
        weights(scratch.tile(block_rows(keys), q_transposed.stride)),
        grad_scores(scratch.tile(block_rows(keys), q_transposed.stride)),
        kept(scratch.tile(round_up(block_rows(keys), 8), q_transposed.stride)),
        grad_q(scratch.tile(queries, stride)) {}

  void set_columns(std::int64_t columns) {
    for (auto* const tile : {&q_transposed, &grad_output_transposed, &weights, &grad_scores, &kept}) {
      tile->stride = columns;
    }
  }

  static std::int64_t elements(std::int64_t stride, std::int64_t max_queries) {
    return attention_block * (8 * stride + 3 * attention_block) + round_up(max_queries, attention_block) * stride;
  }
};

template <class Element>
void load_queries(Head<Element> const& head, Block queries, BackwardRows<Element> const& rows, BackwardTiles& tiles) {
  std::int64_t const first_row = head.query_row + queries.begin;
  tiles.set_columns(round_up(queries.count, lanes::width));
  load(head, head.view.q, first_row, queries.count, tiles.q);
  load(head, rows.grad_output, first_row, queries.count, tiles.grad_output);
  std::int64_t const stride = tiles.q.stride;
  transpose(Rows<float const>{tiles.q.data, stride}, queries.count, stride, head.view.scale * log2_e,
            tiles.q_transposed);
  transpose(Rows<float const>{tiles.grad_output.data, stride}, queries.count, stride, 1, tiles.grad_output_transposed);
  for (std::int64_t i = 0; i < tiles.q_transposed.stride; ++i) {
    // A query that sees no key, or is no query, has no weights: 2^(score - infinity).
    float const normalizer = i < queries.count ? rows.log_sum_exp[first_row + i][head.head] : -infinity;
    tiles.log_sum_exp[i / lanes::width][i % lanes::width] = normalizer == -infinity ? infinity : normalizer * log2_e;
  }
}

/// delta = grad_output · output of each query, for calls that do not have all keys at hand.
template <class Element>
void load_delta(Head<Element> const& head, Block queries, BackwardRows<Element> const& rows, BackwardTiles& tiles) {
  for (std::int64_t i = 0; i < queries.count; ++i) {
    Element const* const output = head.at(rows.output, head.query_row + queries.begin + i);
    Floats products = {};
    for (std::int64_t d = 0; d < head.view.head_dim; d += lanes::width) {
      products += lanes::load(output + d, head.view.head_dim - d) * lanes::load(tiles.grad_output[i] + d);
    }
    tiles.delta[i / lanes::width][i % lanes::width] = lanes::sum(products);
  }
}

/// From the scores and grad_weights (in grad_scores) to the dropped-out weights and the scores' gradients, times scale.
/// `all_keys`: the block holds every key, so that delta = Σ weight * grad_weight.
void differentiate_softmax(BackwardTiles& tiles, std::int64_t keys, bool dropout, bool all_keys, float scale) {
  std::int64_t const stride = tiles.weights.stride;
  if (dropout) {
    scale_elements(tiles.grad_scores, keys, tiles.kept);
  }
  for (std::int64_t v = 0; v < stride / lanes::width; ++v) {
    float* const weights = tiles.weights.data + v * lanes::width;
    float* const grads = tiles.grad_scores.data + v * lanes::width;
    Floats const normalizer = tiles.log_sum_exp[v];
    Floats total = {};
    for (std::int64_t j = 0; j < keys; ++j) {
      Floats const weight = lanes::exp2_of_negative(lanes::load(weights + j * stride) - normalizer);
      total += weight * lanes::load(grads + j * stride);
      lanes::store(weight, weights + j * stride);
    }
    Floats const delta = all_keys ? total : tiles.delta[v];
    for (std::int64_t j = 0; j < keys; ++j) {
      float* const grad = grads + j * stride;
      lanes::store(scale * lanes::load(weights + j * stride) * (lanes::load(grad) - delta), grad);
    }
  }
  if (dropout) {
    scale_elements(tiles.weights, keys, tiles.kept);
  }
}

/// What a block of queries and a block of keys give to each other's gradients.
template <class Element>
void backward_blocks(Head<Element> const& head, Head<Element> const& next, Block queries, Block keys,
                     BackwardRows<Element> const& rows, BackwardTiles& tiles) {
  std::int64_t const stride = head.view.stride();
  bool const all_keys = keys.count == head.keys && head.view.key_position == nullptr && !head.view.accumulate;
  load_queries(head, queries, rows, tiles);
  if (!all_keys) {
    load_delta(head, queries, rows, tiles);
  }
  score(head, tiles.k, tiles.q_transposed, tiles.weights, queries, keys);
  prefetch(next, head.view.q, next.query_row, next.queries);
  lanes::multiply({tiles.v.plain(), tiles.grad_output_transposed, tiles.grad_scores, head.view.head_dim}, keys.count,
                  tiles.grad_scores.stride);
  prefetch(next, head.view.k, next.key_row, next.keys);
  bool const dropout = head.view.dropout.active;
  if (dropout) {
    head.fill_kept(tiles.kept, queries, keys);
  }
  differentiate_softmax(tiles, keys.count, dropout, all_keys, head.view.scale);
  prefetch(next, head.view.v, next.key_row, next.keys);
  lanes::multiply({tiles.weights.plain(), tiles.grad_output, tiles.grad_v, queries.count, true}, keys.count, stride);
  prefetch(next, rows.grad_output, next.query_row, next.queries);
  lanes::multiply({tiles.grad_scores.plain(), tiles.q, tiles.grad_k, queries.count, true}, keys.count, stride);
  prefetch(next, rows.grad_q, next.query_row, next.queries);
  Tile<float> const grad_q{tiles.grad_q[queries.begin], tiles.grad_q.stride};
  lanes::multiply({tiles.grad_scores.transposed(), tiles.k, grad_q, keys.count, true}, queries.count, stride);
  prefetch(next, rows.grad_k, next.key_row, next.keys);
  prefetch(next, rows.grad_v, next.key_row, next.keys);
}

/// All gradients of one head of one sequence: the queries' add up in scratch while the blocks of keys pass by.
template <class Element>
void backward_head(Head<Element> const& head, Head<Element> const& next, BackwardRows<Element> const& rows,
                   Scratch scratch) {
  BackwardTiles tiles(scratch, head.view.stride(), head.queries, head.keys);
  set_zero(tiles.grad_q, head.queries);
  for (std::int64_t key_begin = 0; key_begin < head.keys; key_begin += attention_block) {
    Block const keys = parts::block_at(key_begin, head.keys);
    load(head, head.view.k, head.key_row + key_begin, keys.count, tiles.k);
    load(head, head.view.v, head.key_row + key_begin, keys.count, tiles.v);
    set_zero(tiles.grad_k, keys.count);
    set_zero(tiles.grad_v, keys.count);
    for (std::int64_t begin = 0; begin < head.queries; begin += attention_block) {
      Block const queries = parts::block_at(begin, head.queries);
      if (head.seen(key_begin, queries)) {
        backward_blocks(head, next, queries, keys, rows, tiles);
      }
    }
    store(head, tiles.grad_k, rows.grad_k, head.key_row + key_begin, keys.count);
    store(head, tiles.grad_v, rows.grad_v, head.key_row + key_begin, keys.count);
  }
  store(head, tiles.grad_q, rows.grad_q, head.query_row, head.queries);
}

template <class Element>
void run_forward(Execution& execution, AttentionCall const& call, Tensor const& output, Tensor const& log_sum_exp) {
  parts::AttentionView<Element> const view(call);
  auto const out = parts::rows_of<Element>(output);
  auto const statistics = parts::rows_of<float>(log_sum_exp);
  std::int64_t const elements = attention_block * (4 * view.stride() + 2 * attention_block);
  auto const work = [=](std::int64_t item, Scratch scratch) {
    Head<Element> const head = head_at(view, item);
    Head<Element> const next = head_at(view, item + 1);
    for (std::int64_t begin = 0; begin < head.queries; begin += attention_block) {
      Block const block = parts::block_at(begin, head.queries);
      if (!view.accumulate || (head.keys > 0 && head.seen(0, block))) {
        forward_block(head, next, block, out, statistics, scratch);
      }
    }
  };
  parts::for_each_with_scratch<float>(execution, "simd attention forward", view.count * view.heads, elements, work);
}

template <class Element>
void run_backward(Execution& execution, AttentionCall const& call, BackwardRows<Element> const& rows) {
  parts::AttentionView<Element> const view(call);
  std::int64_t const elements = BackwardTiles::elements(view.stride(), call.queries.max_length);
  auto const work = [=](std::int64_t item, Scratch scratch) {
    backward_head(head_at(view, item), head_at(view, item + 1), rows, scratch);
  };
  parts::for_each_with_scratch<float>(execution, "simd attention backward", view.count * view.heads, elements, work);
}

class SimdAttention : public Attention {
 public:
  bool supports(AttentionProblem const& problem) const override {
    return problem.dtype == DType::float32 || problem.dtype == DType::bfloat16;
  }
  void forward(Execution& execution, AttentionCall const& call, Tensor const& output,
               Tensor const& log_sum_exp) override {
    call.q.dtype() == DType::bfloat16 ? run_forward<BFloat16>(execution, call, output, log_sum_exp)
                                      : run_forward<float>(execution, call, output, log_sum_exp);
  }
  void backward(Execution& execution, AttentionCall const& call, Tensor const& output, Tensor const& log_sum_exp,
                Tensor const& grad_output, AttentionGradients const& gradients) override {
    auto const run = [&]<class Element>(Element) {
      BackwardRows<Element> const rows{parts::rows_of<Element>(output),      parts::rows_of<Element>(grad_output),
                                       parts::rows_of<Element>(gradients.q), parts::rows_of<Element>(gradients.k),
                                       parts::rows_of<Element>(gradients.v), parts::rows_of<float>(log_sum_exp)};
      run_backward<Element>(execution, call, rows);
    };
    call.q.dtype() == DType::bfloat16 ? run(BFloat16{}) : run(float{});
  }
};

}  // namespace

std::shared_ptr<Attention> make_simd_attention() {
  return std::make_shared<SimdAttention>();
}

}  // namespace heddle
