#pragma once

#include <cstdint>

/// The inner parts of the `amx` GEMM, in files that are compiled for matrix registers (AMX). They include this
/// header, too, so it must define nothing that the linker could take from them for other files: plain structs,
/// constants and static functions only.
///
/// A tile register holds 16 rows of 64 bytes. Both factors are packed in the order in which tiles are loaded: 32 rows
/// of op(a) are a strip, 32 columns of op(b) a panel, two tiles each for every step of 32 elements of k.
namespace heddle::amx {

constexpr std::int64_t tile_rows = 16;
/// The elements of k that one operation multiplies.
constexpr std::int64_t step = 32;
/// The rows of a strip and the columns of a panel: two tiles.
constexpr std::int64_t panel = 32;
/// The elements of one step of a strip or panel.
constexpr std::int64_t step_elements = panel * step;

static constexpr std::int64_t ceil_div(std::int64_t count, std::int64_t divisor) {
  return (count + divisor - 1) / divisor;
}

/// A factor as the call gives it: `extent` rows of op(a) or columns of op(b), `k` elements of each. A split factor is
/// packed twice, step by step: its elements rounded, and then what is left of them, rounded, too.
struct Factor {
  void const* data;
  std::int64_t stride;  ///< elements between rows as stored
  std::int64_t extent, k;
  bool k_contiguous;  ///< a plain, or b transposed
  bool float32;       ///< its elements, which are rounded; or bfloat16
  bool split;         ///< only if float32
};

/// The packed copies of each step of a factor.
static constexpr std::int64_t parts(bool split) {
  return split ? 2 : 1;
}

/// The bfloat16 of a packed factor, half of them if it is split. Rows, columns and elements of k beyond the factor's
/// are zeros.
static constexpr std::int64_t packed_elements(std::int64_t extent, std::int64_t k) {
  return ceil_div(extent, panel) * ceil_div(k, step) * step_elements;
}
void pack_rows(Factor const& a, std::uint16_t* packed);
/// The elements of a step of packed rows, once. Few rows take one tile, without a gap in the cache's sets.
static constexpr std::int64_t packed_step(Factor const& a) {
  return a.k_contiguous && a.extent <= tile_rows ? step_elements / 2 : step_elements;
}
void pack_columns(Factor const& b, std::uint16_t* packed);
/// Packs columns of a float32 weight whose k is contiguous, and the same part of the transposed weight, whose panels
/// are `panel_of_transposed` elements apart: one reading for the forward pass and the input's gradient.
void pack_weight(Factor const& b, std::uint16_t* packed, std::uint16_t* transposed, std::int64_t panel_of_transposed);

/// Rows of memory that are read into a cache during products, before they are needed.
struct Upcoming {
  char const* data = nullptr;
  std::int64_t stride = 0;  ///< bytes
  std::int64_t rows = 0, lines = 0;
};

/// The rows of a strip, packed or in place.
struct Left {
  std::uint16_t const* data;
  std::int64_t row;    ///< elements between rows
  std::int64_t below;  ///< to the second tile
  std::int64_t step;   ///< to the next step, or to the second part of this one if the factors are split
};

/// c = or += sums + bias.
struct Output {
  void* data;
  std::int64_t stride;  ///< elements
  std::int64_t rows, columns;
  bool float32;  ///< or bfloat16
  bool accumulate;
  float const* bias;  ///< or null
};

/// The sizes of blocks; `rows`, `columns` and `k` are multiples of 32.
struct Blocking {
  std::int64_t rows = 0, columns = 0, k = 0;
  bool by_panels = false;  ///< few rows, each panel with all strips; otherwise each strip with all panels of a block
  bool packed = false;     ///< all of op(b) is packed already
  bool split = false;      ///< both factors are
};

struct Product {
  Factor a;
  Factor b;                     ///< not read where `packed` is set
  std::uint16_t const* packed;  ///< all of op(b), or null
  Output c;
  Blocking blocking;
  std::uint16_t* left;   ///< room for a packed block of op(a)
  std::uint16_t* right;  ///< room for a packed block of op(b), if `packed` is null
  float* partial;        ///< room for the sums of a block; null if there is one block of k
};
/// Not for products by panels.
void multiply_strips(Product const& product);

/// All rows of a product by panels, and a block of k.
struct Block {
  Left left;
  std::int64_t strip;  ///< elements to the next strip
  std::uint16_t const* right;
  std::int64_t right_panel;  ///< elements to the next panel
  std::int64_t steps;
  bool split;        ///< both factors are: c has their products except those of two second parts
  float* partial;    ///< sums of unfinished blocks of k, a strip's and panel's together; null if there is one block
  bool first, last;  ///< of the blocks of k
  Output output;
};
void multiply_panels(Block const& block);

/// Room for the sums of a strip and a panel.
constexpr std::int64_t sums_elements = panel * panel;

/// Loads the configuration of the tile registers, which multiply_strips() and multiply_panels() need, and sets it back.
void configure();
void release();

// How the GEMM divides a product into blocks that fit in the caches (blocks.cpp).

struct Extents {
  std::int64_t m, n, k;
};
/// `packed`: all of op(b) is packed already. `split`: both factors are.
Blocking blocking_of(Extents const& extents, bool packed, bool split);

/// The room that a product needs.
std::int64_t left_elements(Blocking const& by);
std::int64_t right_elements(Blocking const& by);
std::int64_t partial_elements(Blocking const& by, std::int64_t all_k);

/// c = or += op(a) op(b) + bias. The order of an element's sums depends on k only.
void multiply(Product const& product);

}  // namespace heddle::amx
