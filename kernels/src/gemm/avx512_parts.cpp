#include "avx512_parts.hpp"

#include <heddle/core/operations/kernel_author.hpp>
#include <vector>

#include "support/shares.hpp"

namespace heddle::avx512 {

namespace {

/// A thread's share is at least this many multiplications, or elements to pack: a few times as long as it takes to
/// start and to wait for the threads.
constexpr std::int64_t min_multiplications = 1 << 18;
constexpr std::int64_t min_packed = 1 << 14;

/// The columns of op(b) from `begin` on.
Factor columns_of(Factor factor, std::int64_t begin, std::int64_t count) {
  std::int64_t const size = factor.float32 ? 4 : 2;
  factor.data = static_cast<std::byte const*>(factor.data) + begin * (factor.k_contiguous ? factor.stride : 1) * size;
  factor.extent = count;
  return factor;
}

/// A part of c and the rows and columns of the factors that it needs.
GemmCall part_of(GemmCall const& call, std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) {
  GemmCall part = call;
  part.a = call.transpose_a ? call.a.columns(row, rows) : call.a.rows(row, rows);
  part.b = call.transpose_b ? call.b.rows(column, columns) : call.b.columns(column, columns);
  part.c = call.c.rows(row, rows).columns(column, columns);
  if (!call.bias.empty()) {
    part.bias = call.bias.rows(column, columns);
  }
  return part;
}

}  // namespace

Parts parts_of(GemmProblem const& problem, std::int64_t threads) {
  if (threads == 1) {
    return {};
  }
  std::int64_t const max = kernels::shares(problem.m * problem.n * problem.k, min_multiplications, threads);
  std::int64_t const panels = quotient_up(problem.n, tile_columns);
  std::int64_t const max_of_rows = std::min(max, quotient_up(problem.m, tile_rows));
  Parts best;
  std::int64_t min_time = 0;
  for (std::int64_t of_rows = 1; of_rows <= max_of_rows; ++of_rows) {
    Parts const parts{of_rows, std::min(max / of_rows, panels)};
    std::int64_t const rows = quotient_up(problem.m, of_rows);
    std::int64_t const columns = quotient_up(panels, parts.of_columns);
    // In quarters of a row of a tile: the products, and the reading or packing of the rows of a and the panels of b.
    std::int64_t const time = 4 * rows * columns + rows + 16 * columns;
    if (of_rows == 1 || time < min_time) {
      best = parts;
      min_time = time;
    }
  }
  return best;
}

Product product_in(Arena& scratch, GemmCall const& call, GemmProblem const& problem, Tiles const& tiles,
                   std::uint32_t* packed) {
  auto const words = [&](std::int64_t count) {
    return reinterpret_cast<std::uint32_t*>(scratch.allocate(DType::int32, Shape{count}).raw());
  };
  std::int64_t const steps = quotient_up(problem.k, tiles.elements_per_word);
  bool const weight = packed != nullptr;
  bool const rounds_sums = problem.output_dtype == DType::bfloat16 && steps > block_steps;
  std::int64_t const max_rows = weight ? std::min(block_rows, problem.m) : problem.m;
  std::int64_t const rows = rounds_sums ? std::min(max_rows, partial_rows(problem.n)) : max_rows;
  std::uint32_t* const right = weight ? packed : words(packed_right_words(problem.n, std::min(steps, block_steps)));
  float* const partial = rounds_sums ? reinterpret_cast<float*>(words(rows * problem.n)) : nullptr;
  return {call, problem, tiles, steps, right, weight, words(packed_left_words), rows, partial};
}

void multiply_parts(Execution& execution, GemmCall const& call, Tiles const& tiles, Parts const& parts,
                    std::uint32_t* packed) {
  GemmProblem const whole = call.problem();
  std::int64_t const panels = quotient_up(whole.n, tile_columns);
  std::int64_t const panel_words = right_panel_stride(quotient_up(whole.k, tiles.elements_per_word));
  auto const count = static_cast<std::size_t>(parts.count());
  std::vector<GemmCall> calls(count);  // products refer to these and to the problems
  std::vector<GemmProblem> problems(count);
  std::vector<Product> products;
  products.reserve(count);
  for (std::size_t part = 0; part < count; ++part) {
    std::int64_t const i = static_cast<std::int64_t>(part) / parts.of_columns;
    std::int64_t const j = static_cast<std::int64_t>(part) % parts.of_columns;
    std::int64_t const row = kernels::share_begin(whole.m, i, parts.of_rows);
    std::int64_t const panel = kernels::share_begin(panels, j, parts.of_columns);
    std::int64_t const column = panel * tile_columns;
    std::int64_t const column_end =
        std::min(whole.n, tile_columns * kernels::share_begin(panels, j + 1, parts.of_columns));
    calls[part] =
        part_of(call, row, kernels::share_begin(whole.m, i + 1, parts.of_rows) - row, column, column_end - column);
    problems[part] = calls[part].problem();
    products.push_back(product_in(execution.scratch, calls[part], problems[part], tiles,
                                  packed != nullptr ? packed + panel * panel_words : nullptr));
  }
  Product const* const of_threads = products.data();
  kernels::for_each(execution, "avx512 gemm", parts.count(), [=](std::int64_t part) { multiply(of_threads[part]); });
  execution.space.fence();
}

void pack_weight(Execution& execution, GemmCall const& call, GemmProblem const& problem, Tiles const& tiles,
                 std::uint32_t* packed) {
  Factor const whole = right_factor(call, problem, 0, problem.k);
  std::int64_t const panels = quotient_up(problem.n, tile_columns);
  std::int64_t const panel_words = right_panel_stride(quotient_up(problem.k, tiles.elements_per_word));
  std::int64_t const threads = execution.space.concurrency();
  std::int64_t const parts = std::min(panels, kernels::shares(problem.n * problem.k, min_packed, threads));
  if (parts == 1) {
    tiles.pack_right(whole, packed);
    return;
  }
  auto const pack = tiles.pack_right;
  kernels::for_each(execution, "avx512 gemm weight", parts, [=](std::int64_t part) {
    std::int64_t const panel = kernels::share_begin(panels, part, parts);
    std::int64_t const begin = panel * tile_columns;
    std::int64_t const end = std::min(whole.extent, tile_columns * kernels::share_begin(panels, part + 1, parts));
    pack(columns_of(whole, begin, end - begin), packed + panel * panel_words);
  });
  execution.space.fence();
}

}  // namespace heddle::avx512
