#include <algorithm>

#include "factories.hpp"
#include "kernel_parts.hpp"

namespace heddle {

namespace {

using Index = std::int64_t;

/// The micro-tile of c that stays in registers: 8 rows by 128 bytes. The compiler turns multiply_panel's loops into
/// fused multiply-adds on whole vectors only for such sizes; see bench/gemm_benchmark.cpp before changing them.
constexpr int tile_rows = 8;
template <class Real>
constexpr int tile_columns = 128 / static_cast<int>(sizeof(Real));
/// How much of k a packed panel holds at once (with tile_columns: half of an L1 cache).
constexpr Index block_depth = 128;
/// Rows of c that one work item computes, tile by tile: a panel is used so often while it is in the L1 cache.
constexpr Index block_rows = 128;

/// A matrix that may be transposed: element (i, j) is data[i * row_stride + j * column_stride].
template <class Real>
struct Oriented {
  Real const* data;
  Index row_stride;
  Index column_stride;

  Oriented(Tensor const& tensor, bool transposed)
      : data(tensor.data<Real>()),
        row_stride(transposed ? 1 : tensor.row_stride()),
        column_stride(transposed ? tensor.row_stride() : 1) {}
};

/// op(b) in panels of tile_columns columns and block_depth rows, so that the innermost loop reads it in order; columns
/// beyond n are zero. Panel `panel` of the rows from `p` on is at p * columns + panel * depth * tile_columns.
template <class Real>
struct PackedPanels {
  Real* data;
  Index columns;  ///< n rounded up to whole panels

  KOKKOS_INLINE_FUNCTION Real* panel(Index p, Index depth, Index index) const {
    return data + p * columns + index * depth * tile_columns<Real>;
  }
};

template <class Real>
struct Product {
  Index m, n, k;
  Oriented<Real> a;
  PackedPanels<Real> b;
  parts::Rows<Real> c;
  Real const* bias;
  bool accumulate;

  KOKKOS_INLINE_FUNCTION Index depth_at(Index p) const { return k - p < block_depth ? k - p : block_depth; }
};

template <class Real>
void pack(Execution& execution, Oriented<Real> const& b, Product<Real> const& product) {
  constexpr int width = tile_columns<Real>;
  Index const panels = product.b.columns / width;
  Index const blocks = (product.k + block_depth - 1) / block_depth;
  parts::for_each(
      execution, "heddle::gemm_pack", panels * blocks, KOKKOS_LAMBDA(Index item) {
        Index const begin = item / panels * block_depth;
        Index const depth = product.depth_at(begin);
        Index const column = item % panels * width;
        Index const filled = product.n - column < width ? product.n - column : width;
        Real const* const from = b.data + begin * b.row_stride + column * b.column_stride;
        Real* const to = product.b.panel(begin, depth, item % panels);
        for (Index p = 0; p < depth; ++p) {
          for (Index j = 0; j < width; ++j) {
            to[p * width + j] = j < filled ? from[p * b.row_stride + j * b.column_stride] : Real{0};
          }
        }
      });
}

/// sums = the rows' elements 0, stride, …, (depth - 1) * stride times the panel.
template <class Real>
KOKKOS_INLINE_FUNCTION void multiply_panel(Real const* const (&rows)[tile_rows], Index stride, Real const* panel,
                                           Index depth, Real (&sums)[tile_rows][tile_columns<Real>]) {
  constexpr int width = tile_columns<Real>;
  Real totals[tile_rows][width] = {};
  for (Index p = 0; p < depth; ++p) {
    for (int i = 0; i < tile_rows; ++i) {
      Real const value = rows[i][p * stride];
      for (int j = 0; j < width; ++j) {
        totals[i][j] += value * panel[p * width + j];
      }
    }
  }
  for (int i = 0; i < tile_rows; ++i) {
    for (int j = 0; j < width; ++j) {
      sums[i][j] = totals[i][j];
    }
  }
}

/// Adds `sums` to a row's `columns` columns, or replaces them where `keep` is false.
template <class Real>
KOKKOS_INLINE_FUNCTION void store_row(Real* to, Real const* sums, Real const* bias, Index columns, bool keep) {
  if (keep) {
    for (Index j = 0; j < columns; ++j) {
      to[j] += sums[j];
    }
  } else {
    for (Index j = 0; j < columns; ++j) {
      to[j] = sums[j];
    }
  }
  if (bias != nullptr) {
    for (Index j = 0; j < columns; ++j) {
      to[j] += bias[j];
    }
  }
}

/// Adds a micro-tile's sums to c, or makes them c where this is the first block of k and nothing is accumulated.
template <class Real>
KOKKOS_INLINE_FUNCTION void store(Product<Real> const& product, Real const (&sums)[tile_rows][tile_columns<Real>],
                                  Index row, Index column, bool first) {
  constexpr Index width = tile_columns<Real>;
  Index const rows = product.m - row < tile_rows ? product.m - row : tile_rows;
  Index const columns = product.n - column < width ? product.n - column : width;
  bool const keep = product.accumulate || !first;
  Real const* const bias = first && product.bias != nullptr ? product.bias + column : nullptr;
  for (Index i = 0; i < rows; ++i) {
    // The usual number of columns as a constant: whole vectors without a remainder.
    if (columns == width) {
      store_row(product.c[row + i] + column, sums[i], bias, width, keep);
    } else {
      store_row(product.c[row + i] + column, sums[i], bias, columns, keep);
    }
  }
}

/// Rows [row_begin, row_begin + block_rows) of c in one panel's columns.
template <class Real>
KOKKOS_INLINE_FUNCTION void multiply_block(Product<Real> const& product, Index row_begin, Index panel) {
  Index const row_end = row_begin + block_rows < product.m ? row_begin + block_rows : product.m;
  for (Index p = 0; p < product.k; p += block_depth) {
    Index const depth = product.depth_at(p);
    for (Index row = row_begin; row < row_end; row += tile_rows) {
      Real const* rows[tile_rows];
      for (int i = 0; i < tile_rows; ++i) {
        // Past the last row its elements are read again, and the sums are not stored.
        Index const existing = row + i < row_end ? row + i : row_end - 1;
        rows[i] = product.a.data + existing * product.a.row_stride + p * product.a.column_stride;
      }
      Real sums[tile_rows][tile_columns<Real>];
      multiply_panel(rows, product.a.column_stride, product.b.panel(p, depth, panel), depth, sums);
      store(product, sums, row, panel * tile_columns<Real>, p == 0);
    }
  }
}

/// Without a reduction dimension the loop over its blocks does nothing: c = bias, or c += bias.
template <class Real>
void multiply_nothing(Execution& execution, Product<Real> const& product) {
  parts::for_each(
      execution, "heddle::gemm_empty", product.m, KOKKOS_LAMBDA(Index row) {
        for (Index j = 0; j < product.n; ++j) {
          Real const bias = product.bias != nullptr ? product.bias[j] : Real{0};
          product.c[row][j] = (product.accumulate ? product.c[row][j] : Real{0}) + bias;
        }
      });
}

template <class Real>
void multiply_as(Execution& execution, GemmCall const& call, GemmProblem const& problem) {
  constexpr Index width = tile_columns<Real>;
  Index const panels = (problem.n + width - 1) / width;
  ArenaScope const scope(execution.scratch);
  Tensor const packed = execution.scratch.allocate(problem.dtype, Shape{problem.k, panels * width});
  Product<Real> const product{problem.m,
                              problem.n,
                              problem.k,
                              Oriented<Real>(call.a, problem.transpose_a),
                              {packed.data<Real>(), panels * width},
                              parts::rows_of<Real>(call.c),
                              problem.bias ? call.bias.data<Real>() : nullptr,
                              problem.accumulate};
  if (problem.k == 0) {
    multiply_nothing(execution, product);
    return;
  }
  pack(execution, Oriented<Real>(call.b, problem.transpose_b), product);
  Index const row_blocks = (problem.m + block_rows - 1) / block_rows;
  parts::for_each(
      execution, "heddle::gemm", row_blocks * panels,
      KOKKOS_LAMBDA(Index item) { multiply_block(product, item / panels * block_rows, item % panels); });
}

/// Packed panels of b and a register-tiled inner loop that the compiler vectorises.
class KokkosGemm final : public Gemm {
 public:
  bool supports(GemmProblem const& problem) const override {
    return problem.dtype == problem.output_dtype &&
           (problem.dtype == DType::float32 || problem.dtype == DType::float64);
  }

  void multiply(Execution& execution, GemmCall const& call) override {
    GemmProblem const problem = call.problem();
    parts::with_real(problem.dtype, [&]<class Real>(Real) { multiply_as<Real>(execution, call, problem); });
  }
};

}  // namespace

std::shared_ptr<Gemm> make_kokkos_gemm() {
  return std::make_shared<KokkosGemm>();
}

}  // namespace heddle
