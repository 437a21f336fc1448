#pragma once

#include <heddle/core/operations/timings.hpp>

#include "attention/simd.hpp"
#include "registers.hpp"

/// Factors of products in the order in which matrix registers are loaded, and the work's division among threads. Tiles
/// of rows have columns in the order of simd.hpp: of 32 the even ones come first.
namespace heddle::amx_attention {

using kernels::attention_block;
using kernels::Block;
using kernels::Rows;
using lanes::Floats;
using lanes::Words;
using simd_attention::infinity;
using simd_attention::log2_e;
using simd_attention::Scratch;

using Head = kernels::AttentionHead<BFloat16>;
using View = kernels::AttentionView<BFloat16>;

/// The float32 that hold the elements of a row, and whole registers of rows.
inline std::int64_t words_of(std::int64_t elements) {
  return round_up(elements, step) / 2;
}
inline std::int64_t whole_rows(std::int64_t count) {
  return round_up(count, register_rows);
}

/// Rows of this head as a left factor whose product has rows of its own for them: in their place, with other rows below
/// them, or, where whole registers cannot be read there, in `copy` [whole_rows, words_of(head_dim)]. `all_rows`: the
/// rows that the tensor has.
inline Left left_rows(Head const& head, Rows<BFloat16> const& rows, std::int64_t first, std::int64_t count,
                      std::int64_t all_rows, Tile<float> copy) {
  std::int64_t const head_dim = head.view.head_dim;
  BFloat16 const* from = head.at(rows, first);
  if (head_dim % step == 0 && first + whole_rows(count) <= all_rows) {
    return {from, rows.stride * 2};
  }
  for (std::int64_t i = 0; i < count; ++i, from += rows.stride) {
    for (std::int64_t d = 0; d < head_dim; d += step) {
      lanes::store_words(simd_attention::load_group(from + d, head_dim - d), copy[i] + d / 2);
    }
  }
  return {copy.data, copy.stride * 4};
}

/// Writes the pairs of two rows' elements.
inline void store_pairs(Words first, Words second, float* to) {
  lanes::store_words((first & 0xffffU) | (second << 16), to);
  lanes::store_words((first >> 16) | (second & 0xffff0000U), to + lanes::width);
}

/// 32 elements of a row from `d` on. `whole`: head_dim is a multiple of 32; otherwise zeros follow it.
template <bool whole>
Words load_elements(BFloat16 const* row, std::int64_t d, std::int64_t head_dim) {
  return whole ? lanes::load_words(row + d) : simd_attention::load_group(row + d, head_dim - d);
}

template <bool whole>
void pack_pairs(BFloat16 const* from, std::int64_t stride, std::int64_t head_dim, std::int64_t count, Tile<float> to) {
  std::int64_t pair = 0;
  for (; 2 * pair + 1 < count; ++pair, from += 2 * stride) {
    if (pair % 8 == 0) {
      keep_awake();
    }
    for (std::int64_t d = 0; d < head_dim; d += step) {
      store_pairs(load_elements<whole>(from, d, head_dim), load_elements<whole>(from + stride, d, head_dim),
                  to[pair] + d);
    }
  }
  if (2 * pair < count) {
    for (std::int64_t d = 0; d < head_dim; d += step) {
      store_pairs(load_elements<whole>(from, d, head_dim), Words{}, to[pair] + d);
    }
    ++pair;
  }
  for (float* rest = to[pair]; rest < to[words_of(count)]; rest += lanes::width) {
    lanes::store(Floats{}, rest);
  }
}

/// to [words_of(count), tile_stride] = pairs of rows of this head, zeros beyond them: a right factor whose sums run
/// along the rows.
inline void pack_pairs(Head const& head, Rows<BFloat16> const& rows, std::int64_t first, std::int64_t count,
                       Tile<float> to) {
  std::int64_t const head_dim = head.view.head_dim;
  BFloat16 const* const from = head.at(rows, first);
  head_dim % step == 0 ? pack_pairs<true>(from, rows.stride, head_dim, count, to)
                       : pack_pairs<false>(from, rows.stride, head_dim, count, to);
}

template <bool whole>
void pack_transposed(BFloat16 const* from, std::int64_t stride, std::int64_t head_dim, std::int64_t count,
                     Tile<float> to) {
  for (std::int64_t begin = 0; begin < count; begin += lanes::width, from += lanes::width * stride) {
    std::int64_t const last = count - begin - 1;
    for (std::int64_t d = 0; d < head_dim; d += step) {
      keep_awake();
      Floats block[lanes::width];
      BFloat16 const* row = from;
#pragma GCC unroll 16
      for (std::int64_t i = 0; i < lanes::width; ++i) {
        block[i] = std::bit_cast<Floats>(load_elements<whole>(row, d, head_dim));
        row += i < last ? stride : 0;
      }
      lanes::transpose(block);
#pragma GCC unroll 16
      for (std::int64_t i = 0; i < lanes::width; ++i) {
        lanes::store(block[i], to[d / 2 + i] + begin);
      }
    }
  }
}

/// to [words_of(head_dim), whole_rows(count)] = rows of this head, transposed in pairs of elements: a right factor
/// whose sums run along head_dim. Columns beyond the rows repeat the last one.
inline void pack_transposed(Head const& head, Rows<BFloat16> const& rows, std::int64_t first, std::int64_t count,
                            Tile<float> to) {
  std::int64_t const head_dim = head.view.head_dim;
  BFloat16 const* const from = head.at(rows, first);
  head_dim % step == 0 ? pack_transposed<true>(from, rows.stride, head_dim, count, to)
                       : pack_transposed<false>(from, rows.stride, head_dim, count, to);
}

/// 32 elements of a row, or the first `count` and zeros, in the order of tiles.
inline lanes::Pair load_sums(BFloat16 const* from, std::int64_t count) {
  return lanes::pair_of(simd_attention::load_group(from, count));
}
inline lanes::Pair load_sums(float const* from, std::int64_t count) {
  alignas(64) float elements[step];
  lanes::store(lanes::load(from, count), elements);
  lanes::store(count > lanes::width ? lanes::load(from + lanes::width, count - lanes::width) : Floats{},
               elements + lanes::width);
  return lanes::load_pair(elements);
}

/// The first `count` of a row's 32 elements = the sums.
inline void store_sums(lanes::Pair sums, BFloat16* to, std::int64_t count) {
  Floats const both[] = {sums.even, sums.odd};
  simd_attention::store_group(both, to, count, false);
}
inline void store_sums(lanes::Pair sums, float* to, std::int64_t count) {
  auto const [low, high] = lanes::in_order(sums);
  lanes::store(low, to, count);
  if (count > lanes::width) {
    lanes::store(high, to + lanes::width, count - lanes::width);
  }
}

/// Rows of this head = or, where the call accumulates, += `count` rows of a tile.
template <class Result>
void store_rows(Tile<float> tile, std::int64_t count, Head const& head, Rows<Result> const& rows, std::int64_t first) {
  std::int64_t const head_dim = head.view.head_dim;
  Result* to = head.at(rows, first);
  float const* from = tile.data;
  for (std::int64_t i = 0; i < count; ++i, to += rows.stride, from += tile.stride) {
    if (i % 8 == 0) {
      keep_awake();
    }
    for (std::int64_t d = 0; d < head_dim; d += step) {
      lanes::Pair sums{lanes::load(from + d), lanes::load(from + d + lanes::width)};
      if (head.view.accumulate) {
        lanes::Pair const before = load_sums(to + d, head_dim - d);
        sums = {before.even + sums.even, before.odd + sums.odd};
      }
      store_sums(sums, to + d, head_dim - d);
    }
  }
}

/// Two vectors as bfloat16, one after the other.
inline Words rounded_in_order(Floats first, Floats second) {
  return reinterpret_cast<Words>(
      _mm512_cvtne2ps_pbh(reinterpret_cast<__m512>(second), reinterpret_cast<__m512>(first)));
}
/// The pairs of the two vectors' elements.
inline Floats interleaved(Words halves) {
  constexpr Words places = {0x100000, 0x110001, 0x120002, 0x130003, 0x140004, 0x150005, 0x160006, 0x170007,
                            0x180008, 0x190009, 0x1a000a, 0x1b000b, 0x1c000c, 0x1d000d, 0x1e000e, 0x1f000f};
  return reinterpret_cast<Floats>(_mm512_maskz_permutexvar_epi16(0xffffffffU, reinterpret_cast<__m512i>(places),
                                                                 reinterpret_cast<__m512i>(halves)));
}
inline void store_half(Words halves, float* to) {
  std::memcpy(to, &halves, sizeof(halves) / 2);
}
inline void store_other_half(Words halves, float* to) {
  auto const half = __builtin_shufflevector(halves, halves, 8, 9, 10, 11, 12, 13, 14, 15);
  std::memcpy(to, &half, sizeof(half));
}

/// to [16 rows, words] = the first `count` of 16 vectors, transposed, with zeros for the others.
inline void store_transposed(Floats (&vectors)[lanes::width], std::int64_t count, Tile<float> to) {
  for (std::int64_t i = count; i < lanes::width; ++i) {
    vectors[i] = Floats{};
  }
  keep_awake();
  lanes::transpose(vectors);
  for (std::int64_t i = 0; i < lanes::width; ++i) {
    lanes::store(vectors[i], to[i]);
  }
}

/// tile *= factor.
inline void scale(Tile<float> tile, std::int64_t rows, float factor) {
  for (std::int64_t i = 0; i < rows * tile.stride; i += lanes::width) {
    lanes::store(factor * lanes::load(tile.data + i), tile.data + i);
  }
}

/// Brings a short sequence's rows of this head to the first-level cache, `written` for writing: registers' loads wait
/// for all earlier stores to their rows, and so for those before them.
template <bool written, class Element>
void prefetch(Head const& head, Rows<Element> const& rows, std::int64_t first, std::int64_t count) {
  constexpr std::int64_t line = 64 / static_cast<std::int64_t>(sizeof(Element));
  std::int64_t const ahead = count > attention_block ? 0 : count;
  Element const* row = head.at(rows, first);
  keep_awake();
  for (std::int64_t i = 0; i < ahead; ++i, row += rows.stride) {
    for (std::int64_t d = 0; d < head.view.head_dim; d += line) {
      if constexpr (written) {
        __asm__ volatile("prefetchw %0" : : "m"(row[d]));
      } else {
        __builtin_prefetch(row + d);
      }
    }
  }
}

/// Calls body(item, scratch) for each item. Each thread configures the registers for several of them at a time.
template <class Body>
void for_each_item(Execution& execution, char const* name, std::int64_t items, std::int64_t scratch_elements,
                   Body const& body) {
  std::int64_t const threads = compute_threads();
  std::int64_t const ranges = threads == 1 ? 1 : 8 * threads;
  std::int64_t const length = (items + ranges - 1) / ranges;
  auto const work = [=](std::int64_t range, Scratch scratch) {
    Configured const configured;
    for (std::int64_t item = range * length; item < (range + 1) * length && item < items; ++item) {
      body(item, scratch);
    }
  };
  kernels::for_each_with_scratch<float>(execution, name, length > 0 ? (items + length - 1) / length : 0,
                                        scratch_elements, work);
}

}  // namespace heddle::amx_attention
