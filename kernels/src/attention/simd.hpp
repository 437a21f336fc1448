#pragma once

#include "scores.hpp"
#include "vector/lanes_multiply.hpp"

/// Attention on the host's vector units: the algorithm of attention/kokkos.cpp, with block sizes that follow the
/// sequences, in tiles that fit the first-level cache. Scores are in units of ln 2, so that exponentials are powers of
/// two.
///
/// Products along head_dim use bfloat16 directly, in pairs. For the other products rows are widened to float32, in
/// groups of one vector of `Element`: a group of 32 bfloat16 becomes the elements of even and then of odd index (Pair).
namespace heddle::simd_attention {

using kernels::AllBackwardRows;
using kernels::attention_block;
using kernels::Block;
using kernels::round_up;
using kernels::Rows;
using kernels::Tile;
using lanes::Floats;

template <class Element>
using Head = kernels::AttentionHead<Element>;
using Scratch = kernels::Scratch<float>;
template <class Element>
using Unit = lanes::Unit<Element>;

constexpr float log2_e = 1.44269504F;
constexpr float ln_2 = 0.693147181F;
constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr std::int64_t block_vectors = attention_block / lanes::width;

/// The number of float32 vectors in a group, and of its elements.
template <class Element>
constexpr std::int64_t group_vectors = Unit<Element>::elements;
template <class Element>
constexpr std::int64_t group = group_vectors<Element>* lanes::width;

/// The number of columns of tiles [tokens, head_dim].
template <class Element>
std::int64_t tile_stride(kernels::AttentionView<Element> const& view) {
  return round_up(view.head_dim, group<Element>);
}

inline std::int64_t block_rows(std::int64_t length) {
  return length < attention_block ? length : attention_block;
}

/// The call's heads in order; items beyond them get the last one.
template <class Element>
Head<Element> head_at(kernels::AttentionView<Element> const& view, std::int64_t item) {
  std::int64_t const last = view.count * view.heads - 1;
  std::int64_t const bounded = item < last ? item : last;
  return {view, bounded / view.heads, bounded % view.heads};
}

/// The bits of the first `count` elements of a group, zero beyond them.
template <class Element>
[[gnu::noinline]] typename Unit<Element>::Vector load_part_of_group(Element const* from, std::int64_t count) {
  Element part[group<Element>] = {};
  std::memcpy(static_cast<void*>(part), from, static_cast<std::size_t>(count) * sizeof(Element));
  return std::bit_cast<typename Unit<Element>::Vector>(part);
}
template <class Element>
typename Unit<Element>::Vector load_group(Element const* from, std::int64_t count) {
  if (count < group<Element>) {
    return load_part_of_group(from, count);
  }
  typename Unit<Element>::Vector bits;
  std::memcpy(&bits, from, sizeof(bits));
  return bits;
}

inline void widen(Floats bits, float* to) {
  lanes::store(bits, to);
}
inline void widen(lanes::Words bits, float* to) {
  lanes::Pair const pair = lanes::pair_of(bits);
  lanes::store(pair.even, to);
  lanes::store(pair.odd, to + lanes::width);
}

/// The first `count` elements of a group = the vectors' elements, or += where `accumulate`.
inline void store_group(Floats const* from, float* to, std::int64_t count, bool accumulate) {
  lanes::store(accumulate ? lanes::load(to, count) + *from : *from, to, count);
}
inline void store_group(Floats const* from, BFloat16* to, std::int64_t count, bool accumulate) {
  lanes::Pair value{from[0], from[1]};
  if (accumulate) {
    lanes::Pair const before = lanes::pair_of(load_group<BFloat16>(to, count));
    value = {before.even + value.even, before.odd + value.odd};
  }
  if (count >= lanes::pair_width) {
    lanes::store_pair(value, to);
  } else {
    BFloat16 part[lanes::pair_width];
    lanes::store_pair(value, part);
    std::memcpy(static_cast<void*>(to), part, static_cast<std::size_t>(count) * sizeof(BFloat16));
  }
}

/// tile [count, head_dim] = rows first … first + count of this head, widened, zero beyond head_dim.
template <class Element>
void load(Head<Element> const& head, Rows<Element> const& rows, std::int64_t first, std::int64_t count,
          Tile<float> tile) {
  std::int64_t const head_dim = head.view.head_dim;
  Element const* from = head.at(rows, first);
  for (float* to = tile.data; to < tile[count]; to += tile.stride, from += rows.stride) {
    for (std::int64_t d = 0; d < head_dim; d += group<Element>) {
      widen(load_group<Element>(from + d, head_dim - d), to + d);
    }
  }
}

/// to [units of head_dim, count] = the rows transposed; columns beyond them, up to the next whole vector, repeat the
/// last one.
template <class Element>
void transpose(Head<Element> const& head, Rows<Element> const& rows, std::int64_t first, std::int64_t count,
               Tile<float> to) {
  std::int64_t const head_dim = head.view.head_dim;
  for (std::int64_t begin = 0; begin < count; begin += lanes::width) {
    std::int64_t const last = count - begin < lanes::width ? count - begin - 1 : lanes::width - 1;
    for (std::int64_t d = 0; d < head_dim; d += group<Element>) {
      Element const* const from = head.at(rows, first + begin) + d;
      Floats block[lanes::width];
#pragma GCC unroll 16
      for (std::int64_t i = 0; i < lanes::width; ++i) {
        block[i] = std::bit_cast<Floats>(load_group<Element>(from + (i < last ? i : last) * rows.stride, head_dim - d));
      }
      lanes::transpose(block);
#pragma GCC unroll 16
      for (std::int64_t i = 0; i < lanes::width; ++i) {
        lanes::store(block[i], to[d / Unit<Element>::elements + i] + begin);
      }
    }
  }
}

/// The rows as a product's left factor: in their place or, if head_dim is not a number of whole units, in `spare`.
template <class Element>
kernels::Factor<Element> left_factor(Head<Element> const& head, Rows<Element> const& rows, std::int64_t first,
                                     std::int64_t count, Tile<float> spare) {
  std::int64_t const unit = Unit<Element>::elements;
  std::int64_t const head_dim = head.view.head_dim;
  if (head_dim % unit == 0) {
    return {head.at(rows, first), rows.stride, unit};
  }
  std::int64_t const stride = spare.stride * unit;
  auto* const copy = reinterpret_cast<Element*>(spare.data);
  for (std::int64_t i = 0; i < count; ++i) {
    std::memset(spare[i], 0, static_cast<std::size_t>(spare.stride) * sizeof(float));
    std::memcpy(spare[i], head.at(rows, first + i), static_cast<std::size_t>(head_dim) * sizeof(Element));
  }
  return {copy, stride, unit};
}

/// The product of `count` rows from `first` on with `transposed`; `spare` as in left_factor.
template <class Element>
lanes::Product<Element> product_of(Head<Element> const& head, Rows<Element> const& rows, std::int64_t first,
                                   std::int64_t count, Tile<float> spare, Tile<float> transposed) {
  std::int64_t const unit = Unit<Element>::elements;
  return {left_factor(head, rows, first, count, spare), transposed, (head.view.head_dim + unit - 1) / unit};
}

/// to [count, columns] = scale * the product's inner products.
template <class Element>
void inner_products(lanes::Product<Element> const& product, std::int64_t count, float scale, Tile<float> to) {
  lanes::multiply<1>(product, count, to.stride, [=](std::int64_t row, std::int64_t column, auto const& sums) {
    float* at = to[row] + column;
    for (Floats const sum : sums) {
      lanes::store(scale * sum, at);
      at += lanes::width;
    }
  });
}

/// Elements [begin, end) of a row of scores = -infinity; what elements beyond its `count` become does not matter.
inline void hide(float* row, std::int64_t begin, std::int64_t end, std::int64_t count) {
  bool const to_the_end = end >= count;
  for (std::int64_t i = begin / lanes::width * lanes::width; begin < end && i < end; i += lanes::width) {
    auto const first = static_cast<std::int32_t>(begin - i);
    auto const last = to_the_end ? std::int32_t{lanes::width} : static_cast<std::int32_t>(end - i);
    Floats const before = lanes::load(row + i);
    Floats const hidden = lanes::indices() < first ? before : lanes::all(-infinity);
    lanes::store(lanes::indices() < last ? hidden : before, row + i);
  }
}

/// Scores [keys, queries] = -infinity where the query does not see the key.
template <class Element>
void hide_unseen(Head<Element> const& head, Block queries, Block keys, Tile<float> scores) {
  for (std::int64_t j = 0; !head.view.mask.is(MaskKind::bidirectional) && j < keys.count; ++j) {
    auto const visible = head.seeing(keys.begin + j, queries);
    std::int64_t const end = visible.range.end();
    hide(scores[j], visible.global, visible.range.begin, queries.count);
    hide(scores[j], end > visible.global ? end : visible.global, queries.count, queries.count);
  }
}

/// The order of columns in tiles of widened rows: of 32 bfloat16 the even ones come first.
template <class Element>
struct WidenedOrder {
  static constexpr std::int64_t column(std::int64_t d) {
    std::int64_t const begin = d / group<Element> * group<Element>;
    std::int64_t const within = d - begin;
    return begin + within % group_vectors<Element> * lanes::width + within / group_vectors<Element>;
  }
};

/// to [head_dim, queries] = a tile of widened rows [queries, head_dim], transposed; further columns are 0.
template <class Element>
void transpose_widened(Tile<float> rows, std::int64_t head_dim, std::int64_t queries, Tile<float> to) {
  for (std::int64_t d = 0; d < head_dim; ++d) {
    std::int64_t const column = WidenedOrder<Element>::column(d);
    for (std::int64_t i = 0; i < to.stride; ++i) {
      to[d][i] = i < queries ? rows[i][column] : 0;
    }
  }
}

/// Gives scores [keys, queries], in units of ln 2, their cap, their biases and -infinity where the query does not see
/// the key. `slopes`: the derivatives of the cap, if they are wanted.
template <class Element>
void finish_scores(Head<Element> const& head, Block queries, Block keys, Tile<float> scores, Tile<float> slopes) {
  auto const& view = head.view;
  if (view.soft_cap > 0) {
    kernels::ScoreExtents const extents{keys.count, scores.stride};
    kernels::cap_scores(scores, extents, view.soft_cap * log2_e);
    if (slopes.data != nullptr) {
      kernels::cap_slopes(scores, extents, view.soft_cap * log2_e, slopes);
    }
  }
  if (view.bias) {
    kernels::add_bias(head, queries, keys, log2_e, scores);
  }
  hide_unseen(head, queries, keys, scores);
}

/// Writes a product's rows to rows of this head, starting at `first`: = or, where `accumulate`, +=.
template <class Element>
struct ToRows {
  Element* data;
  std::int64_t stride, head_dim;
  bool accumulate;

  ToRows(Head<Element> const& head, Rows<Element> const& rows, std::int64_t first, bool add)
      : data(head.at(rows, first)), stride(rows.stride), head_dim(head.view.head_dim), accumulate(add) {}

  template <std::size_t vectors>
  void operator()(std::int64_t row, std::int64_t column, Floats const (&sums)[vectors]) const {
    Element* const to = data + row * stride;
    for (std::size_t v = 0; v < vectors; v += group_vectors<Element>) {
      std::int64_t const d = column + static_cast<std::int64_t>(v) * lanes::width;
      store_group(sums + v, to + d, head_dim - d, accumulate);
    }
  }
};

/// Writes `count` rows of a tile.
template <class Element>
void store(Tile<float> tile, std::int64_t count, ToRows<Element> const& to_rows) {
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t d = 0; d < tile.stride; d += group<Element>) {
      Floats values[group_vectors<Element>];
      std::memcpy(values, tile[i] + d, sizeof(values));
      to_rows(i, d, values);
    }
  }
}

/// Prefetches a short sequence's rows of this head into the second-level cache: they are too few for the machine's own
/// prefetching, and waiting for them would cost as much as computing with them. Inlined, because GCC drops calls of
/// functions that do nothing else.
template <class Element>
[[gnu::always_inline]] inline void prefetch(Head<Element> const& head, Rows<Element> const& rows, std::int64_t first,
                                            std::int64_t count) {
  constexpr std::int64_t line = 64 / sizeof(Element);
  std::int64_t const ahead = count > attention_block ? 0 : count;
  Element const* row = head.at(rows, first);
  for (std::int64_t i = 0; i < ahead; ++i, row += rows.stride) {
    for (std::int64_t d = 0; d < head.view.head_dim; d += line) {
      __builtin_prefetch(row + d, 0, 2);
    }
  }
}

inline void set_zero(Tile<float> tile, std::int64_t rows) {
  for (std::int64_t i = 0; i < rows * tile.stride; i += lanes::width) {
    lanes::store(Floats{}, tile.data + i);
  }
}

/// tile *= factors, both [rows, tile.stride].
inline void scale_elements(Tile<float> tile, std::int64_t rows, Tile<float> factors) {
  for (std::int64_t i = 0; i < rows * tile.stride; i += lanes::width) {
    lanes::store(lanes::load(tile.data + i) * lanes::load(factors.data + i), tile.data + i);
  }
}

}  // namespace heddle::simd_attention
