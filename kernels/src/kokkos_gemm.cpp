#include <algorithm>

#include "factories.hpp"
#include "gemm_types.hpp"

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
/// Rows of c that one work item computes, tile by tile: a panel is used so often while it is in the L1 cache. Their
/// sums stay on the work item's stack until they are complete, and are rounded once.
constexpr Index block_rows = 32;

/// A matrix that may be transposed: element (i, j) is data[i * row_stride + j * column_stride].
template <class Element>
struct Oriented {
  Element const* data;
  Index row_stride;
  Index column_stride;

  Oriented(Tensor const& tensor, bool transposed)
      : data(tensor.data<Element>()),
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

template <class A, class C>
struct Product {
  using Real = parts::ArithmeticType<A>;

  Index m, n, k;
  Oriented<A> a;
  PackedPanels<Real> b;
  parts::Rows<C> c;
  Real const* bias;
  bool accumulate;

  KOKKOS_INLINE_FUNCTION Index depth_at(Index p) const { return k - p < block_depth ? k - p : block_depth; }
};

template <class A, class B, class C>
void pack(Execution& execution, Oriented<B> const& b, Product<A, C> const& product) {
  using Real = parts::ArithmeticType<A>;
  constexpr int width = tile_columns<Real>;
  Index const panels = product.b.columns / width;
  Index const blocks = (product.k + block_depth - 1) / block_depth;
  parts::for_each(
      execution, "heddle::gemm_pack", panels * blocks, KOKKOS_LAMBDA(Index item) {
        Index const begin = item / panels * block_depth;
        Index const depth = product.depth_at(begin);
        Index const column = item % panels * width;
        Index const filled = product.n - column < width ? product.n - column : width;
        B const* const from = b.data + begin * b.row_stride + column * b.column_stride;
        Real* const to = product.b.panel(begin, depth, item % panels);
        for (Index p = 0; p < depth; ++p) {
          for (Index j = 0; j < width; ++j) {
            to[p * width + j] = j < filled ? parts::factor<A>(from[p * b.row_stride + j * b.column_stride]) : Real{0};
          }
        }
      });
}

/// Adds a (tile_rows × depth, its column p at left[p]) times the panel to the sums.
template <class Real>
KOKKOS_INLINE_FUNCTION void multiply_panel(Real const (*left)[tile_rows], Real const* panel, Index depth,
                                           Real (*sums)[tile_columns<Real>]) {
  constexpr int width = tile_columns<Real>;
  Real totals[tile_rows][width] = {};
  for (Index p = 0; p < depth; ++p) {
    for (int i = 0; i < tile_rows; ++i) {
      Real const value = left[p][i];
      for (int j = 0; j < width; ++j) {
        totals[i][j] += value * panel[p * width + j];
      }
    }
  }
  for (int i = 0; i < tile_rows; ++i) {
    for (int j = 0; j < width; ++j) {
      sums[i][j] += totals[i][j];
    }
  }
}

/// Rows [row, row + tile_rows) and columns [p, p + depth) of op(a), column by column; beyond the last row are zeros.
template <class A, class C>
KOKKOS_INLINE_FUNCTION void copy_left(Product<A, C> const& product, Index row, Index p, Index depth,
                                      parts::ArithmeticType<A> (*left)[tile_rows]) {
  using Real = parts::ArithmeticType<A>;
  for (int i = 0; i < tile_rows; ++i) {
    if (row + i >= product.m) {
      for (Index q = 0; q < depth; ++q) {
        left[q][i] = 0;
      }
      continue;
    }
    A const* const from = product.a.data + (row + i) * product.a.row_stride + p * product.a.column_stride;
    for (Index q = 0; q < depth; ++q) {
      left[q][i] = static_cast<Real>(from[q * product.a.column_stride]);
    }
  }
}

/// One row of c from its sums: = or +=, with the bias if there is one.
template <class A, class C>
KOKKOS_INLINE_FUNCTION void store_row(Product<A, C> const& product, parts::ArithmeticType<A> const* sums, Index row,
                                      Index column, Index columns) {
  using Real = parts::ArithmeticType<A>;
  C* const to = product.c[row] + column;
  Real const* const bias = product.bias != nullptr ? product.bias + column : nullptr;
  for (Index j = 0; j < columns; ++j) {
    Real const before = product.accumulate ? static_cast<Real>(to[j]) : Real{0};
    to[j] = static_cast<C>(before + sums[j] + (bias != nullptr ? bias[j] : Real{0}));
  }
}

/// Rows [row_begin, row_begin + block_rows) of c in one panel's columns.
template <class A, class C>
KOKKOS_INLINE_FUNCTION void multiply_block(Product<A, C> const& product, Index row_begin, Index panel) {
  using Real = parts::ArithmeticType<A>;
  constexpr Index width = tile_columns<Real>;
  Index const row_end = row_begin + block_rows < product.m ? row_begin + block_rows : product.m;
  Real sums[block_rows][width] = {};
  Real left[block_depth][tile_rows];
  for (Index p = 0; p < product.k; p += block_depth) {
    Index const depth = product.depth_at(p);
    for (Index row = row_begin; row < row_end; row += tile_rows) {
      copy_left(product, row, p, depth, left);
      multiply_panel(left, product.b.panel(p, depth, panel), depth, sums + (row - row_begin));
    }
  }
  Index const column = panel * width;
  Index const columns = product.n - column < width ? product.n - column : width;
  for (Index row = row_begin; row < row_end; ++row) {
    // The usual number of columns as a constant: whole vectors without a remainder.
    if (columns == width) {
      store_row(product, sums[row - row_begin], row, column, width);
    } else {
      store_row(product, sums[row - row_begin], row, column, columns);
    }
  }
}

template <class A, class B, class C>
void multiply_as(Execution& execution, GemmCall const& call, GemmProblem const& problem) {
  using Real = parts::ArithmeticType<A>;
  constexpr Index width = tile_columns<Real>;
  Index const panels = (problem.n + width - 1) / width;
  ArenaScope const scope(execution.scratch);
  Tensor const packed = execution.scratch.allocate(DTypeOf<Real>::value, Shape{problem.k, panels * width});
  Product<A, C> const product{problem.m,
                              problem.n,
                              problem.k,
                              Oriented<A>(call.a, problem.transpose_a),
                              {packed.data<Real>(), panels * width},
                              parts::rows_of<C>(call.c),
                              problem.bias ? call.bias.data<Real>() : nullptr,
                              problem.accumulate};
  pack<A, B, C>(execution, Oriented<B>(call.b, problem.transpose_b), product);
  Index const row_blocks = (problem.m + block_rows - 1) / block_rows;
  parts::for_each(
      execution, "heddle::gemm", row_blocks * panels,
      KOKKOS_LAMBDA(Index item) { multiply_block(product, item / panels * block_rows, item % panels); });
}

/// Packed panels of b and a register-tiled inner loop that the compiler vectorises.
class KokkosGemm final : public Gemm {
 public:
  bool supports(GemmProblem const& problem) const override { return parts::has_gemm_types(problem); }

  void multiply(Execution& execution, GemmCall const& call) override {
    GemmProblem const problem = call.problem();
    parts::with_gemm_types(problem,
                           [&]<class A, class B, class C>(A, B, C) { multiply_as<A, B, C>(execution, call, problem); });
  }
};

}  // namespace

std::shared_ptr<Gemm> make_kokkos_gemm() {
  return std::make_shared<KokkosGemm>();
}

}  // namespace heddle
