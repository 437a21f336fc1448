#pragma once

#include <algorithm>
#include <heddle/core/base/index_range.hpp>
#include <heddle/core/operations/gemm.hpp>
#include <heddle/core/operations/kernel_author.hpp>
#include <vector>

#include "support/shares.hpp"

/// How threads share a product of the `avx512` and of the `amx` GEMM: c is cut into parts, and a thread computes each
/// as a product of its own, with its own room for packed blocks. Each element's products are summed in the same order
/// in any part that has it, so results do not depend on the parts.
namespace heddle::kernels {

struct GemmBlocks {
  std::int64_t of_rows = 1, of_columns = 1;

  std::int64_t count() const { return of_rows * of_columns; }
};

/// Properties of an implementation on which the parts depend.
struct GemmTiles {
  std::int64_t rows, columns;  ///< of a tile and of a panel: parts have whole ones
  double row_time;             ///< to read or pack a row of op(a), in the time of its products with a panel
  double panel_time;           ///< to read or pack a panel of op(b), in the time of its products with a row
  /// A thread's share takes at least as long as this many multiplications, with the reading of panels: a few times as
  /// long as it takes to start and to wait for the threads.
  std::int64_t min_multiplications;
};

/// Elements of a weight that a thread packs at least.
constexpr std::int64_t min_packed = 1 << 14;

constexpr std::int64_t count_up(std::int64_t count, std::int64_t size) {
  return (count + size - 1) / size;
}

/// At most `threads` parts, and only one if the product is too small to share. Reading a panel counts like its
/// products with panel_time rows.
inline GemmBlocks gemm_blocks_of(GemmProblem const& problem, GemmTiles const& tiles, std::int64_t threads) {
  if (threads == 1) {
    return {};
  }
  std::int64_t const work = (problem.m + static_cast<std::int64_t>(tiles.panel_time)) * problem.n * problem.k;
  std::int64_t const max = shares(work, tiles.min_multiplications, threads);
  std::int64_t const panels = count_up(problem.n, tiles.columns);
  std::int64_t const strips = count_up(problem.m, tiles.rows);
  GemmBlocks best;
  double min_time = 0;
  for (std::int64_t of_rows = 1; of_rows <= std::min(max, strips); ++of_rows) {
    GemmBlocks const parts{of_rows, std::min(max / of_rows, panels)};
    auto const rows = static_cast<double>(count_up(strips, of_rows) * tiles.rows);
    auto const columns = static_cast<double>(count_up(panels, parts.of_columns));
    double const time = rows * columns + rows * tiles.row_time + columns * tiles.panel_time;
    if (of_rows == 1 || time < min_time) {
      best = parts;
      min_time = time;
    }
  }
  return best;
}

/// A part of c and the rows and columns of the factors that it needs, and its first panel of op(b).
struct GemmBlock {
  GemmCall call;
  std::int64_t first_panel;
};

inline GemmBlock gemm_block(GemmCall const& call, GemmTiles const& tiles, GemmBlocks const& parts, std::int64_t index) {
  auto const range = [](std::int64_t count, std::int64_t size, std::int64_t part, std::int64_t of) {
    IndexRange const own = share(count_up(count, size), part, of);
    return IndexRange{own.begin * size, std::min(own.end * size, count)};
  };
  IndexRange const rows = range(call.c.dim(0), tiles.rows, index / parts.of_columns, parts.of_rows);
  IndexRange const columns = range(call.c.dim(1), tiles.columns, index % parts.of_columns, parts.of_columns);
  GemmCall part = call;
  part.a = call.transpose_a ? call.a.columns(rows.begin, rows.count()) : call.a.rows(rows.begin, rows.count());
  part.b =
      call.transpose_b ? call.b.rows(columns.begin, columns.count()) : call.b.columns(columns.begin, columns.count());
  part.c = call.c.rows(rows.begin, rows.count()).columns(columns.begin, columns.count());
  if (!call.bias.empty()) {
    part.bias = call.bias.rows(columns.begin, columns.count());
  }
  return {part, columns.begin / tiles.columns};
}

/// Calls multiply(product) for each, in a thread of its own.
template <class Product>
void multiply_parts(Execution& execution, char const* name, std::vector<Product> const& products) {
  Product const* const of_threads = products.data();
  for_each(execution, name, static_cast<std::int64_t>(products.size()),
           [=](std::int64_t part) { multiply(of_threads[part]); });
  execution.space.fence();
}

/// The columns of op(b) from `begin` on.
template <class Factor>
Factor columns_of(Factor factor, std::int64_t begin, std::int64_t count) {
  std::int64_t const size = factor.float32 ? 4 : 2;
  factor.data = static_cast<std::byte const*>(factor.data) + begin * (factor.k_contiguous ? factor.stride : 1) * size;
  factor.extent = count;
  return factor;
}

/// Room for the packed panels of op(b).
template <class Word>
struct Panels {
  Word* packed;
  std::int64_t words;    ///< from one panel to the next
  std::int64_t columns;  ///< of op(b) in a panel
};

/// Packs all of op(b) with all threads; pack(columns, packed) packs the columns of some panels.
template <class Factor, class Word, class Pack>
void pack_panels(Execution& execution, char const* name, Factor const& b, Panels<Word> const& panels,
                 Pack const& pack) {
  std::int64_t const count = count_up(b.extent, panels.columns);
  std::int64_t const threads = execution.space.concurrency();
  std::int64_t const parts = std::min(count, shares(b.extent * b.k, min_packed, threads));
  if (parts == 1) {
    pack(b, panels.packed);
    return;
  }
  for_each(execution, name, parts, [=](std::int64_t part) {
    IndexRange const own = share(count, part, parts);
    std::int64_t const begin = own.begin * panels.columns;
    std::int64_t const end = std::min(b.extent, own.end * panels.columns);
    pack(columns_of(b, begin, end - begin), panels.packed + own.begin * panels.words);
  });
  execution.space.fence();
}

}  // namespace heddle::kernels
