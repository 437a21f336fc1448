#include <algorithm>

#include "tiles.hpp"

namespace heddle::amx {

namespace {

/// Elements of k of a block: a strip of them, 32 KiB, stays in the first-level cache, through which panels stream.
constexpr std::int64_t max_k = 512;
/// With a packed weight, this many are faster in one block than with partial sums.
constexpr std::int64_t max_k_of_weight = 2048;
/// Elements of a packed op(b) that stay in the second-level cache, 1 MiB, and of a block of op(a) beside them, 256 KiB.
constexpr std::int64_t max_right = std::int64_t{1} << 19;
constexpr std::int64_t max_left = std::int64_t{1} << 17;
/// Columns of a block of op(b) that is packed for it, and partial sums, 1 MiB, so that each row of op(a) is packed once
/// for as many columns.
constexpr std::int64_t max_columns = 512;
constexpr std::int64_t max_partial = std::int64_t{1} << 18;
/// With a packed weight and several blocks of k: of up to 3,000 elements of k the second-level cache holds all blocks.
constexpr std::int64_t max_columns_of_weight = 256;
constexpr std::int64_t min_columns = 128;
/// With at most this many rows a weight is read once, whatever its size: sums of all rows are finished together.
constexpr std::int64_t few_rows = 512;
/// The same where there is one block of k: with more rows, columns that stay in the cache are faster, which read the
/// weight once, too, and write longer parts of a row.
constexpr std::int64_t few_rows_of_one_block = 2 * panel;

/// The length of the parts into which `count` is divided evenly, rounded up to a multiple of 32; at most `max` if that
/// is one.
std::int64_t even_part(std::int64_t count, std::int64_t max) {
  std::int64_t const parts = ceil_div(count, std::max(max, panel));
  return ceil_div(ceil_div(count, std::max<std::int64_t>(parts, 1)), panel) * panel;
}

bool one_k_block(Blocking const& by, std::int64_t all_k) {
  return by.k >= all_k;
}

/// Few rows, all of which are packed or read in place, with a packed op(b).
void multiply_by_panels(Product const& product) {
  Blocking const& by = product.blocking;
  std::int64_t const all_k = product.a.k;
  bool const in_place = product.a.k_contiguous && !by.split && all_k % step == 0 && product.a.extent % panel == 0;
  for (std::int64_t k = 0; k < all_k; k += by.k) {
    Factor a = product.a;
    a.k = std::min(by.k, all_k - k);
    std::int64_t const offset = k * (a.k_contiguous ? 1 : a.stride);
    a.data = static_cast<char const*>(a.data) + offset * (a.float32 ? 4 : 2);
    Block block{.left = {static_cast<std::uint16_t const*>(a.data), a.stride, tile_rows * a.stride, step},
                .strip = panel * a.stride,
                .right = product.packed + parts(by.split) * k * panel,
                .right_panel = parts(by.split) * packed_elements(panel, all_k),
                .steps = ceil_div(a.k, step),
                .split = by.split,
                .partial = product.partial,
                .first = k == 0,
                .last = k + by.k >= all_k,
                .output = product.c};
    if (!in_place) {
      pack_rows(a, product.left);
      block.left = {product.left, step, step_elements / 2, packed_step(a)};
      block.strip = parts(by.split) * packed_elements(panel, a.k);
    }
    multiply_panels(block);
  }
}

}  // namespace

Blocking blocking_of(Extents const& extents, bool packed, bool split) {
  auto const& [m, n, k] = extents;
  std::int64_t const packed_k = k * parts(split);  // what the sizes of packed blocks depend on
  Blocking by{.packed = packed, .split = split};
  bool const whole_k = packed && (packed_k <= max_k_of_weight || m <= 2 * panel);
  by.k = even_part(k, whole_k ? k : max_k / parts(split));
  bool const one_block = one_k_block(by, k);
  std::int64_t const block_k = by.k * parts(split);
  by.columns = ceil_div(n, panel) * panel;
  by.rows = ceil_div(m, panel) * panel;
  if (packed && (n * packed_k <= max_right || m <= (one_block ? few_rows_of_one_block : few_rows))) {
    by.by_panels = m <= 2 * panel || by.columns * block_k > max_right;
  } else if (packed && one_block) {
    by.columns = even_part(n, std::max(max_right / block_k, min_columns));
  } else {
    by.columns = even_part(n, packed ? max_columns_of_weight : max_columns);
  }
  if (!by.by_panels) {
    std::int64_t const rows_of_sums = (packed ? max_partial / 2 : max_partial) / by.columns;
    by.rows = even_part(m, one_block ? max_left / block_k : rows_of_sums);
  }
  return by;
}

std::int64_t left_elements(Blocking const& by) {
  return by.rows * by.k * parts(by.split);
}

std::int64_t right_elements(Blocking const& by) {
  return by.packed ? 0 : by.columns * by.k * parts(by.split);
}

std::int64_t partial_elements(Blocking const& by, std::int64_t all_k) {
  return one_k_block(by, all_k) ? 0 : by.rows * by.columns;
}

void multiply(Product const& product) {
  configure();
  product.blocking.by_panels ? multiply_by_panels(product) : multiply_strips(product);
  release();
}

}  // namespace heddle::amx
