#pragma once

#include <cstdint>

/// The inner parts of the avx512 GEMM, the only files that are compiled for AVX-512. They include this header, too, so
/// it must define nothing that the linker could take from them for other files: plain structs and constants only.
///
/// Both factors are packed in words of 32 bits: a float32, or two bfloat16 that are adjacent along the reduction
/// dimension k. A step multiplies one word of each row of a by one word of each column of b.
namespace heddle::avx512 {

/// A tile of c: sums live in 28 of 32 vector registers.
constexpr int tile_rows = 14;
constexpr int tile_columns = 32;
/// The number of steps in one block of k, for which a tile reads 14 KiB of a and 32 KiB of b.
constexpr std::int64_t block_steps = 256;
/// The distance, in words, from one row of packed a to the next if k is contiguous, otherwise from one step to the
/// next.
constexpr std::int64_t left_row_stride = block_steps + 16;
constexpr std::int64_t left_step_stride = 16;
/// Unused steps at the end of a panel of packed factors. They keep rows and panels from lying at powers of two, where
/// they would share cache sets.
constexpr std::int64_t panel_gap = 1;

/// A factor as the call gives it: `extent` rows of op(a) or columns of op(b), `k` elements each.
struct Factor {
  void const* data;
  std::int64_t stride;  ///< elements between rows as stored
  std::int64_t extent, k;
  bool k_contiguous;  ///< a plain, or b transposed
  bool float32;       ///< its elements, or bfloat16; converted to those of the words
};

/// Where and how a tile's sums are written: destination = or += sums + bias + partial.
struct Destination {
  void* data;  ///< float32 or bfloat16
  std::int64_t stride;
  bool bfloat16, accumulate;
  float const* bias;     ///< or null
  float const* partial;  ///< sums of earlier blocks of k, or null
  std::int64_t partial_stride;
};

struct Tile {
  void const* left;             ///< rows of words, packed or in place, or a packed panel, step by step
  std::int64_t left_row_bytes;  ///< from one row to the next; 0: it is a panel
  std::uint32_t const* right;   ///< a panel of tile_columns columns, step by step
  std::int64_t steps;
  int rows, columns;  ///< at most tile_rows and tile_columns
  void const* ahead;  ///< each step prefetches a cache line from here on, for the next block to be packed
  std::int64_t ahead_bytes;
  Destination destination;
};

struct Tiles {
  std::int64_t elements_per_word;
  /// Packs op(a): if k is contiguous, its rows, at most block_steps words each; else panels of `panel_rows` rows.
  void (*pack_left)(Factor const& a, int panel_rows, std::uint32_t* packed);
  /// Packs op(b)'s columns by panels of tile_columns, each step by step; columns that do not exist are zeros.
  void (*pack_right)(Factor const& b, std::uint32_t* packed);
  void (*multiply)(Tile const& tile);
};

/// The functions of float32_tiles need a CPU with AVX-512 F, BW and VL; bfloat16_tiles needs BF16 as well.
extern Tiles const float32_tiles;
extern Tiles const bfloat16_tiles;

}  // namespace heddle::avx512
