#include "blocks.hpp"

#include <heddle/core/tensor/tensor.hpp>

namespace heddle::avx512 {

namespace {

constexpr std::int64_t cache_line = 64;

struct Steps {
  std::int64_t begin, count;  ///< in words
  std::int64_t k_begin, k_count;
  bool first, last;
};

Steps steps_from(Product const& product, std::int64_t begin) {
  std::int64_t const width = product.tiles.elements_per_word;
  std::int64_t const count = std::min(block_steps, product.steps - begin);
  return {begin,         count,
          begin * width, std::min(count * width, product.problem.k - begin * width),
          begin == 0,    begin + count == product.steps};
}

/// The elements from (row, column) on.
void* address(Tensor const& tensor, std::int64_t row, std::int64_t column) {
  return static_cast<std::byte*>(tensor.raw()) +
         (row * tensor.row_stride() + column) * static_cast<std::int64_t>(size_of(tensor.dtype()));
}

/// The destination of a block's sums, from row `row` of c on: c, or `partial` while blocks of k are still to come.
Destination destination(Product const& product, std::int64_t row, Steps const& steps) {
  GemmProblem const& problem = product.problem;
  float* const partial = product.partial != nullptr ? product.partial + row % product.rows * problem.n : nullptr;
  if (partial != nullptr && !steps.last) {
    return {partial, problem.n, false, !steps.first, nullptr, nullptr, 0};
  }
  bool const in_place = partial == nullptr;
  return {address(product.call.c, row, 0),
          product.call.c.row_stride(),
          problem.output_dtype == DType::bfloat16,
          problem.accumulate || (in_place && !steps.first),
          problem.bias && (steps.first || !in_place) ? product.call.bias.data<float>() : nullptr,
          partial,
          problem.n};
}

/// The destination, shifted by `rows` rows and `columns` columns.
Destination moved(Destination to, std::int64_t rows, std::int64_t columns) {
  std::int64_t const size = to.bfloat16 ? 2 : 4;
  to.data = static_cast<std::byte*>(to.data) + (rows * to.stride + columns) * size;
  to.bias += to.bias != nullptr ? columns : 0;
  to.partial += to.partial != nullptr ? rows * to.partial_stride + columns : 0;
  return to;
}

/// A block of a in the form that the tiles read.
struct Left {
  std::byte const* data;
  std::int64_t row_bytes;    ///< 0 where it is in panels
  std::int64_t panel_bytes;  ///< panel_rows rows further on
  int panel_rows;            ///< of one tile
};

/// Rows of a are read in place if k is contiguous, unless a word would reach beyond the row or their distance makes
/// them share a few sets of the L1 cache.
Left left_block(Product const& product, std::int64_t row, std::int64_t rows, Steps const& steps) {
  // The heights of tiles are as even as possible: a tile of one or two rows would wait for its own sums.
  auto const panel_rows = static_cast<int>(ceil_div(rows, ceil_div(rows, tile_rows)));
  Tensor const& a = product.call.a;
  bool const transposed = product.problem.transpose_a;
  void* const data = transposed ? address(a, steps.k_begin, row) : address(a, row, steps.k_begin);
  std::int64_t const row_bytes = a.row_stride() * static_cast<std::int64_t>(size_of(a.dtype()));
  constexpr std::int64_t conflicting_bytes = 2048;
  bool const whole_words = steps.k_count == steps.count * product.tiles.elements_per_word;
  if (!transposed && whole_words && row_bytes % conflicting_bytes != 0) {
    return {static_cast<std::byte const*>(data), row_bytes, panel_rows * row_bytes, panel_rows};
  }
  product.tiles.pack_left({data, a.row_stride(), rows, steps.k_count, !transposed, a.dtype() == DType::float32},
                          panel_rows, product.left);
  auto const* const packed = reinterpret_cast<std::byte const*>(product.left);
  if (transposed) {
    return {packed, 0, left_panel_stride(steps.count) * 4, panel_rows};
  }
  return {packed, left_row_stride * 4, panel_rows * left_row_stride * 4, panel_rows};
}

/// A block of a stored matrix that will be packed next. Tiles prefetch it into the L2 cache while they multiply, one
/// strip each: a cache line of every row or, since a step takes two rows of bfloat16, of every other row.
struct Upcoming {
  std::byte const* data = nullptr;
  std::int64_t row_bytes = 0;
  std::int64_t strips = 0;
};

Upcoming upcoming(Tiles const& tiles, Tensor const& matrix, std::int64_t row, std::int64_t column,
                  std::int64_t columns) {
  auto const size = static_cast<std::int64_t>(size_of(matrix.dtype()));
  std::int64_t const lines = ceil_div(columns * size, cache_line);
  return {static_cast<std::byte const*>(address(matrix, row, column)), matrix.row_stride() * size,
          size == 2 ? tiles.elements_per_word * lines : lines};
}

/// The strip that the next tile prefetches; none after the last.
class Ahead {
 public:
  Ahead(Tiles const& tiles, Upcoming const& left, Upcoming const& right)
      : rows_(tiles.elements_per_word), blocks_{left, right} {}

  void next_strip(Tile& tile) {
    for (Upcoming& block : blocks_) {
      if (block.strips > 0) {
        --block.strips;
        tile.ahead = block.data + block.strips / rows_ * cache_line + block.strips % rows_ * block.row_bytes;
        tile.ahead_bytes = rows_ * block.row_bytes;
        return;
      }
    }
    tile.ahead = tile.right;
    tile.ahead_bytes = 0;
  }

 private:
  std::int64_t rows_;
  Upcoming blocks_[2];
};

/// Computes rows [row, row + rows) of c from a block of k.
void multiply_block(Product const& product, std::int64_t row, std::int64_t rows, Steps const& steps, Ahead ahead) {
  Left const left = left_block(product, row, rows, steps);
  Destination const to = destination(product, row, steps);
  bool const all_steps = product.right_is_packed;
  std::uint32_t const* right = product.right + (all_steps ? steps.begin * tile_columns : 0);
  std::int64_t const right_stride = right_panel_stride(all_steps ? product.steps : steps.count);
  for (std::int64_t column = 0; column < product.problem.n; column += tile_columns, right += right_stride) {
    std::byte const* panel = left.data;
    auto const columns = static_cast<int>(std::min<std::int64_t>(tile_columns, product.problem.n - column));
    for (std::int64_t i = 0; i < rows; i += left.panel_rows, panel += left.panel_bytes) {
      auto const tile_rows = static_cast<int>(std::min<std::int64_t>(left.panel_rows, rows - i));
      Tile tile{panel, left.row_bytes, right, steps.count, tile_rows, columns, nullptr, 0, moved(to, i, column)};
      ahead.next_strip(tile);
      product.tiles.multiply(tile);
    }
  }
}

/// Computes rows [begin, end) of c from a block of k.
void multiply_slice(Product const& product, std::int64_t begin, std::int64_t end, Steps const& steps) {
  GemmCall const& call = product.call;
  GemmProblem const& problem = product.problem;
  if (!product.right_is_packed) {
    product.tiles.pack_right(right_factor(call, problem, steps.k_begin, steps.k_count), product.right);
  }
  for (std::int64_t row = begin; row < end; row += block_rows) {
    bool const last_rows = row + block_rows >= end;
    std::int64_t const next_row = last_rows ? begin : row + block_rows;
    std::int64_t const next_k = last_rows ? steps.k_begin + steps.k_count : steps.k_begin;
    Upcoming left;
    Upcoming right;
    if (problem.transpose_a && next_k < problem.k) {
      left = upcoming(product.tiles, call.a, next_k, next_row, std::min(block_rows, end - next_row));
    }
    if (!product.right_is_packed && !problem.transpose_b && last_rows && !steps.last) {
      right = upcoming(product.tiles, call.b, next_k, 0, problem.n);
    }
    multiply_block(product, row, std::min(block_rows, end - row), steps, Ahead(product.tiles, left, right));
  }
}

}  // namespace

Factor right_factor(GemmCall const& call, GemmProblem const& problem, std::int64_t k_begin, std::int64_t k_count) {
  return {problem.transpose_b ? address(call.b, 0, k_begin) : address(call.b, k_begin, 0),
          call.b.row_stride(),
          problem.n,
          k_count,
          problem.transpose_b,
          problem.b_dtype == DType::float32};
}

/// The loops are slices of rows, in each the blocks of k, and in each of those the blocks of rows, so that packed b is
/// read while it is in the cache.
void multiply(Product const& product) {
  for (std::int64_t row = 0; row < product.problem.m; row += product.rows) {
    Steps steps{};
    do {  // without a reduction dimension (k = 0) there is still one block of it, for the bias
      steps = steps_from(product, steps.begin + steps.count);
      multiply_slice(product, row, std::min(row + product.rows, product.problem.m), steps);
    } while (!steps.last);
  }
}

}  // namespace heddle::avx512
