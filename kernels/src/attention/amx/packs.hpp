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

/// to [words_of(count), tile_stride] = pairs of rows of this head, zeros beyond them: a right factor whose sums run
/// along the rows.
inline void pack_pairs(Head const& head, Rows<BFloat16> const& rows, std::int64_t first, std::int64_t count,
                       Tile<float> to) {
  std::int64_t const head_dim = head.view.head_dim;
  BFloat16 const* from = head.at(rows, first);
  std::int64_t pair = 0;
  for (; 2 * pair + 1 < count; ++pair, from += 2 * rows.stride) {
    for (std::int64_t d = 0; d < head_dim; d += step) {
      store_pairs(simd_attention::load_group(from + d, head_dim - d),
                  simd_attention::load_group(from + rows.stride + d, head_dim - d), to[pair] + d);
    }
  }
  if (2 * pair < count) {
    for (std::int64_t d = 0; d < head_dim; d += step) {
      store_pairs(simd_attention::load_group(from + d, head_dim - d), Words{}, to[pair] + d);
    }
    ++pair;
  }
  std::memset(to[pair], 0, static_cast<std::size_t>((words_of(count) - pair) * to.stride) * sizeof(float));
}

/// to [16 rows, words] = the first `count` of 16 vectors, transposed, with zeros for the others.
inline void store_transposed(Floats (&vectors)[lanes::width], std::int64_t count, Tile<float> to) {
  for (std::int64_t i = count; i < lanes::width; ++i) {
    vectors[i] = Floats{};
  }
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
