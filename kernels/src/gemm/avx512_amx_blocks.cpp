#include "avx512_amx_blocks.hpp"

#include <algorithm>

namespace heddle::amx {

namespace {

/// Elements of k of a block: a strip of them and a panel of them, 32 KiB each, pass through the first-level cache.
constexpr std::int64_t max_k = 512;
/// With a packed weight, whose panels are read ahead, this many are faster in one block than with partial sums.
constexpr std::int64_t max_k_of_weight = 2048;
/// Elements of op(b) that stay in the second-level cache, 1 MiB, and of a block of op(a) and partial sums beside them,
/// 256 KiB and 512 KiB.
constexpr std::int64_t max_right = std::int64_t{1} << 19;
constexpr std::int64_t max_left = std::int64_t{1} << 17;
constexpr std::int64_t max_partial = std::int64_t{1} << 17;
/// Columns for which a block of op(a) is worth its packing, even if op(b) does not stay in the cache.
constexpr std::int64_t min_columns = 128;
/// With at most this many rows a weight is read once, whatever its size: sums of all rows are finished together.
constexpr std::int64_t few_rows = 512;
/// The same where there is one block of k: with more rows, columns that stay in the cache are faster, which read the
/// weight once, too, and write longer parts of a row.
constexpr std::int64_t few_rows_of_one_block = 128;

/// The length of the parts into which `count` is divided evenly, rounded up to a multiple of 32; at most `max` if that
/// is one.
std::int64_t even_part(std::int64_t count, std::int64_t max) {
  std::int64_t const parts = quotient_up(count, std::max(max, panel));
  return quotient_up(quotient_up(count, std::max<std::int64_t>(parts, 1)), panel) * panel;
}

/// `factor` from row (or column) `begin` on, and from element `k` on.
Factor part_of(Factor const& factor, std::int64_t begin, std::int64_t extent, std::int64_t k, std::int64_t k_count) {
  std::int64_t const offset = factor.k_contiguous ? begin * factor.stride + k : k * factor.stride + begin;
  Factor part = factor;
  part.data = static_cast<char const*>(factor.data) + offset * (factor.float32 ? 4 : 2);
  part.extent = extent;
  part.k = k_count;
  return part;
}

Output part_of(Output const& c, std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) {
  Output part = c;
  part.data = static_cast<char*>(c.data) + (row * c.stride + column) * (c.float32 ? 4 : 2);
  part.rows = rows;
  part.columns = columns;
  part.bias += c.bias != nullptr ? column : 0;
  return part;
}

/// The stored lines of a part of a factor.
Upcoming lines_of(Factor const& part) {
  std::int64_t const size = part.float32 ? 4 : 2;
  std::int64_t const rows = part.k_contiguous ? part.extent : part.k;
  std::int64_t const bytes = (part.k_contiguous ? part.k : part.extent) * size;
  return {static_cast<char const*>(part.data), part.stride * size, rows, quotient_up(bytes, 64)};
}

/// The blocks of rows and of k of some columns.
class Columns {
 public:
  Columns(Product const& product, Output const& c, std::uint16_t const* right)
      : product_(product), c_(c), right_(right), k_(product.a.k) {}

  void multiply() const {
    std::int64_t rows = 0;
    for (std::int64_t row = 0; row < c_.rows; row += rows) {
      rows = std::min(product_.blocking.rows, c_.rows - row);
      if (in_place() && rows > panel) {
        rows = rows / panel * panel;  // the rest, less than a strip, is packed
      }
      for (std::int64_t k = 0; k == 0 || k < k_; k += product_.blocking.k) {
        multiply_block(row, rows, k);
      }
    }
  }

 private:
  Factor left_part(std::int64_t row, std::int64_t rows, std::int64_t k) const {
    return part_of(product_.a, row, std::min(rows, c_.rows - row), k, std::min(product_.blocking.k, k_ - k));
  }

  /// Whole strips of rows are read in place where their steps are whole, too. A weight that does not fit in the cache
  /// is not read once more for the rest of the rows.
  bool in_place() const {
    return product_.a.k_contiguous && !product_.a.split && k_ % step == 0 &&
           (!product_.blocking.by_panels || c_.rows % panel == 0);
  }

  Left left_of(Factor const& a) const {
    if (in_place() && a.extent % panel == 0) {
      return {static_cast<std::uint16_t const*>(a.data), a.stride, tile_rows * a.stride, step, panel * a.stride};
    }
    pack_rows(a, product_.left);
    return {product_.left, step, step_elements / 2, packed_step(a), packed_elements(panel, a.k) * parts(a.split)};
  }

  /// Names what a block reads ahead: the next block, or rows in place from the next strip on.
  Upcoming after(std::int64_t row, std::int64_t rows, std::int64_t k) const {
    std::int64_t const next_k = k + product_.blocking.k;
    if (next_k < k_) {
      return lines_of(left_part(row, rows, next_k));
    }
    std::int64_t const next_row = row + (in_place() ? panel : rows);
    return next_row < c_.rows ? lines_of(left_part(next_row, rows, 0)) : Upcoming{};
  }

  void multiply_block(std::int64_t row, std::int64_t rows, std::int64_t k) const {
    Blocking const& by = product_.blocking;
    Factor const a = left_part(row, rows, k);
    if (right_ == nullptr) {
      pack_columns(part_of(product_.b, 0, c_.columns, k, a.k), product_.right);
    }
    amx::multiply(Block{.left = left_of(a),
                        .right = right_ != nullptr ? right_ + parts(by.split) * k * panel : product_.right,
                        .right_panel = parts(by.split) * packed_elements(panel, right_ != nullptr ? k_ : a.k),
                        .steps = quotient_up(a.k, step),
                        .split = by.split,
                        .partial = by.one_k_block ? nullptr : product_.partial,
                        .first = k == 0,
                        .last = k + by.k >= k_,
                        .by_panels = by.by_panels,
                        .upcoming = after(row, rows, k),
                        .output = part_of(c_, row, rows, 0, c_.columns)});
  }

  Product const& product_;
  Output c_;
  std::uint16_t const* right_;
  std::int64_t k_;
};

}  // namespace

Blocking blocking_of(Extents const& extents, bool packed, bool split) {
  auto const& [m, n, k] = extents;
  std::int64_t const packed_k = k * parts(split);  // what the sizes of packed blocks depend on
  Blocking blocking{};
  blocking.split = split;
  blocking.k = even_part(k, packed && (packed_k <= max_k_of_weight || m <= 2 * panel) ? k : max_k / parts(split));
  blocking.one_k_block = blocking.k >= k;
  std::int64_t const block_k = blocking.k * parts(split);
  bool const read_once = m <= (blocking.one_k_block ? few_rows_of_one_block : few_rows);
  if (packed && (n * packed_k <= max_right || read_once)) {
    blocking.columns = quotient_up(n, panel) * panel;
    blocking.by_panels = m <= 2 * panel || blocking.columns * block_k > max_right;
  } else if (!packed && m * n <= max_partial) {
    blocking.columns = quotient_up(n, panel) * panel;
    blocking.right_by_k = true;
  } else {
    blocking.columns = even_part(n, std::max(max_right / std::max(packed_k, step), min_columns));
  }
  std::int64_t const of_left = max_left / block_k;
  std::int64_t const rows = blocking.one_k_block ? of_left : std::min(of_left, max_partial / blocking.columns);
  bool const all_rows = blocking.right_by_k || (packed && m <= few_rows);
  blocking.rows = even_part(m, all_rows ? m : rows);
  return blocking;
}

void multiply(Product const& product) {
  configure();
  std::int64_t const n = product.c.columns;
  for (std::int64_t column = 0; column < n; column += product.blocking.columns) {
    std::int64_t const columns = std::min(product.blocking.columns, n - column);
    std::uint16_t const* right = product.right;
    if (product.packed != nullptr) {
      right = product.packed + parts(product.blocking.split) * packed_elements(column, product.a.k);
    } else if (product.blocking.right_by_k) {
      right = nullptr;
    } else {
      pack_columns(part_of(product.b, column, columns, 0, product.b.k), product.right);
    }
    Columns(product, part_of(product.c, 0, product.c.rows, column, columns), right).multiply();
  }
  release();
}

}  // namespace heddle::amx
