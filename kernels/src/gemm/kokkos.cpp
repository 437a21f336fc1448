
#include "packed_weights.hpp"
#include "support/factories.hpp"
#include "types.hpp"

namespace heddle {

namespace {

using Index = std::int64_t;
using kernels::Oriented;

/// The micro-tile of c that stays in registers: 8 rows by 128 bytes. The compiler turns multiply_panel's loops into
/// fused multiply-adds on whole vectors only for such sizes; changing them needs `heddle kernels --benchmark`.
constexpr int tile_rows = 8;
template <class Real>
constexpr int tile_columns = 128 / static_cast<int>(sizeof(Real));
/// The depth (part of k) of a packed panel, which with tile_columns takes half of an L1 cache.
constexpr Index block_depth = 128;
/// Rows of c that one work item computes, tile by tile, to use a panel often while it is in the L1 cache and to use
/// the copy of the rows of a for many panels. The copy and the sums are on the work item's stack, the sums until they
/// are complete and rounded once.
constexpr Index block_rows = 32;
constexpr Index block_panels = 4;

/// op(b) in panels of tile_columns columns and block_depth rows, so that the innermost loop reads it in order; columns
/// beyond n are zero.
template <class Real>
struct PackedPanels {
  Real* data;
  Index k, n;

  KOKKOS_INLINE_FUNCTION static Index count(Index n) { return (n + tile_columns<Real> - 1) / tile_columns<Real>; }
  static Shape shape(GemmProblem const& problem) { return {problem.k, count(problem.n) * tile_columns<Real>}; }

  KOKKOS_INLINE_FUNCTION Index depth_at(Index p) const { return k - p < block_depth ? k - p : block_depth; }
  /// The panel `index` of the rows [p, p + depth_at(p)).
  KOKKOS_INLINE_FUNCTION Real* panel(Index p, Index index) const {
    return data + (p * count(n) + index * depth_at(p)) * tile_columns<Real>;
  }
};

template <class A, class B, class Real>
void pack(Execution& execution, Oriented<B> const& b, PackedPanels<Real> const& packed) {
  constexpr int width = tile_columns<Real>;
  Index const panels = packed.count(packed.n);
  Index const blocks = (packed.k + block_depth - 1) / block_depth;
  kernels::for_each(
      execution, "heddle::gemm_pack", panels * blocks, KOKKOS_LAMBDA(Index item) {
        Index const begin = item / panels * block_depth;
        Index const depth = packed.depth_at(begin);
        Index const first = item % panels * width;
        Index const filled = packed.n - first < width ? packed.n - first : width;
        B const* const KOKKOS_RESTRICT from = b.data + begin * b.row_stride + first * b.column_stride;
        Real* const KOKKOS_RESTRICT to = packed.panel(begin, item % panels);
        if (b.row_stride == 1) {
          // Each column in memory order, so that its elements are rounded by whole vectors.
          Real column[block_depth];
          for (Index j = 0; j < width; ++j) {
            for (Index p = 0; p < depth; ++p) {
              column[p] = j < filled ? kernels::factor<A>(from[p + j * b.column_stride]) : Real{0};
            }
            for (Index p = 0; p < depth; ++p) {
              to[p * width + j] = column[p];
            }
          }
        } else {
          for (Index p = 0; p < depth; ++p) {
            for (Index j = 0; j < width; ++j) {
              to[p * width + j] = j < filled ? kernels::factor<A>(from[p * b.row_stride + j]) : Real{0};
            }
          }
        }
      });
}

template <class A, class C>
struct Product {
  using Real = kernels::ArithmeticType<A>;

  Index m, n, k;
  Oriented<A> a;
  PackedPanels<Real> b;
  kernels::Rows<C> c;
  Real const* bias;
  bool accumulate;
};

/// Rows of op(a) and one block of k as `Real`s, in memory order, so that whole vectors are copied: element (i, p) is
/// at data[i * row_step + p * depth_step].
template <class Real, bool by_rows>
struct LeftBlock {
  static constexpr Index row_step = by_rows ? block_depth : 1;
  static constexpr Index depth_step = by_rows ? 1 : block_rows;

  Real data[block_rows * block_depth];

  /// Copies rows [row, row + rows) and columns [p, p + depth) of op(a). Rows beyond them are zeros up to a whole tile.
  template <class A, class C>
  KOKKOS_INLINE_FUNCTION void copy(Product<A, C> const& product, Index row, Index rows, Index p, Index depth) {
    Oriented<A> const& a = product.a;
    A const* const KOKKOS_RESTRICT from = a.data + row * a.row_stride + p * a.column_stride;
    if constexpr (by_rows) {
      for (Index i = 0; i < rows; ++i) {
        copy_run(from + i * a.row_stride, depth, data + i * row_step);
      }
    } else if (rows == block_rows) {
      for (Index q = 0; q < depth; ++q) {
        copy_run(from + q * a.column_stride, block_rows, data + q * depth_step);
      }
    } else {
      for (Index q = 0; q < depth; ++q) {
        copy_run(from + q * a.column_stride, rows, data + q * depth_step);
      }
    }
    for (Index i = rows; i % tile_rows != 0; ++i) {
      for (Index q = 0; q < depth; ++q) {
        data[i * row_step + q * depth_step] = 0;
      }
    }
  }

 private:
  template <class A>
  KOKKOS_INLINE_FUNCTION static void copy_run(A const* KOKKOS_RESTRICT from, Index count, Real* KOKKOS_RESTRICT to) {
    for (Index i = 0; i < count; ++i) {
      to[i] = kernels::wide<Real>(from[i]);
    }
  }
};

/// Adds the product of tile_rows rows, starting at `left`, and the panel to the sums.
template <class Left, class Real>
KOKKOS_INLINE_FUNCTION void multiply_panel(Real const* left, Real const* panel, Index depth,
                                           Real (*sums)[tile_columns<Real>]) {
  constexpr int width = tile_columns<Real>;
  Real totals[tile_rows][width] = {};
  for (Index p = 0; p < depth; ++p) {
    for (int i = 0; i < tile_rows; ++i) {
      Real const value = left[i * Left::row_step + p * Left::depth_step];
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

/// One row of c from its sums: = or +=, with the bias if there is one.
template <class A, class C>
KOKKOS_INLINE_FUNCTION void store_row(Product<A, C> const& product, kernels::ArithmeticType<A> const* sums, Index row,
                                      Index column, Index columns) {
  using Real = kernels::ArithmeticType<A>;
  C* const to = product.c[row] + column;
  Real const* const bias = product.bias != nullptr ? product.bias + column : nullptr;
  for (Index j = 0; j < columns; ++j) {
    Real const before = product.accumulate ? kernels::wide<Real>(to[j]) : Real{0};
    to[j] = kernels::narrow<C>(before + sums[j] + (bias != nullptr ? bias[j] : Real{0}));
  }
}

/// Computes rows [row_begin, row_begin + block_rows) of c in the columns of the panels from `first_panel` on.
template <bool by_rows, class A, class C>
KOKKOS_INLINE_FUNCTION void multiply_block(Product<A, C> const& product, Index row_begin, Index first_panel) {
  using Real = kernels::ArithmeticType<A>;
  using Left = LeftBlock<Real, by_rows>;
  constexpr Index width = tile_columns<Real>;
  Index const rows = product.m - row_begin < block_rows ? product.m - row_begin : block_rows;
  Index const left_panels = product.b.count(product.n) - first_panel;
  Index const panels = left_panels < block_panels ? left_panels : block_panels;
  Real sums[block_panels][block_rows][width] = {};
  Left left;
  for (Index p = 0; p < product.k; p += block_depth) {
    Index const depth = product.b.depth_at(p);
    left.copy(product, row_begin, rows, p, depth);
    for (Index panel = 0; panel < panels; ++panel) {
      for (Index i = 0; i < rows; i += tile_rows) {
        multiply_panel<Left>(left.data + i * Left::row_step, product.b.panel(p, first_panel + panel), depth,
                             sums[panel] + i);
      }
    }
  }
  for (Index panel = 0; panel < panels; ++panel) {
    Index const column = (first_panel + panel) * width;
    Index const columns = product.n - column < width ? product.n - column : width;
    for (Index i = 0; i < rows; ++i) {
      // The usual number of columns as a constant: whole vectors without a remainder.
      if (columns == width) {
        store_row(product, sums[panel][i], row_begin + i, column, width);
      } else {
        store_row(product, sums[panel][i], row_begin + i, column, columns);
      }
    }
  }
}

template <class A, class C>
void multiply_packed(Execution& execution, GemmCall const& call, GemmProblem const& problem,
                     PackedPanels<kernels::ArithmeticType<A>> const& b) {
  using Real = kernels::ArithmeticType<A>;
  Product<A, C> const product{problem.m,
                              problem.n,
                              problem.k,
                              Oriented<A>(call.a, problem.transpose_a),
                              b,
                              kernels::rows_of<C>(call.c),
                              problem.bias ? call.bias.data<Real>() : nullptr,
                              problem.accumulate};
  Index const groups = (b.count(problem.n) + block_panels - 1) / block_panels;
  Index const row_blocks = (problem.m + block_rows - 1) / block_rows;
  bool const by_rows = !problem.transpose_a;
  kernels::for_each(
      execution, "heddle::gemm", row_blocks * groups, KOKKOS_LAMBDA(Index item) {
        Index const row = item / groups * block_rows;
        Index const panel = item % groups * block_panels;
        by_rows ? multiply_block<true>(product, row, panel) : multiply_block<false>(product, row, panel);
      });
}

/// Packed panels of b and a register-tiled inner loop that the compiler vectorises. For bfloat16 elements all
/// arithmetic and the packed panels are float32; panels of weights are kept.
class KokkosGemm final : public Gemm {
 public:
  bool supports(GemmProblem const& problem) const override {
    return CompiledTypes::contain(problem.dtype) && kernels::has_gemm_types(problem);
  }

  std::size_t packed_bytes(GemmProblem const& problem) const override {
    std::int64_t elements = 0;
    kernels::with_gemm_types<CompiledTypes>(problem, [&]<class A, class B, class C>(A, B, C) {
      using Real = kernels::ArithmeticType<A>;
      elements = PackedPanels<Real>::shape(problem).size() * static_cast<std::int64_t>(sizeof(Real));
    });
    return static_cast<std::size_t>(elements);
  }
  std::size_t kept_bytes() const override {
    return weights_.bytes([](Tensor const& packed) { return packed.bytes(); });
  }

  void multiply(Execution& execution, GemmCall const& call) override {
    GemmProblem const problem = call.problem();
    kernels::with_gemm_types<CompiledTypes>(problem, [&]<class A, class B, class C>(A, B, C) {
      using Real = kernels::ArithmeticType<A>;
      Shape const shape = PackedPanels<Real>::shape(problem);
      auto const panels = [&](Tensor const& memory) {
        return PackedPanels<Real>{memory.data<Real>(), problem.k, problem.n};
      };
      auto const fill = [&](Tensor const& memory) {
        pack<A>(execution, Oriented<B>(call.b, problem.transpose_b), panels(memory));
      };
      if (call.b_weight.id != 0) {
        auto const make = [&] { return Tensor::allocate(DTypeOf<Real>::value, shape); };
        Tensor const& kept = weights_.current(call, problem, make, fill);
        return multiply_packed<A, C>(execution, call, problem, panels(kept));
      }
      ArenaScope const scope(execution.scratch);
      Tensor const packed = execution.scratch.allocate(DTypeOf<Real>::value, shape);
      fill(packed);
      multiply_packed<A, C>(execution, call, problem, panels(packed));
    });
  }

 private:
  PackedWeights<Tensor> weights_;
};

}  // namespace

void add_portable_gemm_kernels(KernelRegistries& registries) {
  registries.of<Gemm>().add_part("kokkos", priorities::portable, std::make_shared<KokkosGemm>());
}

}  // namespace heddle
