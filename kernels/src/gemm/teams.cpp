#include <algorithm>

#include "support/factories.hpp"
#include "types.hpp"

namespace heddle {

namespace {

using kernels::Oriented;
using Index = std::int64_t;
using Policy = Kokkos::TeamPolicy<Kokkos::DefaultExecutionSpace>;
using Member = Policy::member_type;

/// Rows and columns of c that a team computes, and the part of k whose factors it copies to its scratch at a time.
constexpr int tile = 64;
constexpr int tile_depth = 16;
/// A device's threads of a team; each has a part of micro × micro elements of the tile in its registers: rows
/// part / parts_across * micro + i, columns part % parts_across + parts_across * j. So neighbours read neighbouring
/// columns.
constexpr int parts = 256;
constexpr int parts_across = 16;
constexpr int micro = 4;
static_assert(parts * micro * micro == tile * tile && parts_across * micro == tile);

/// Gradients of weights have few tiles and long sums, which are split into slices of at least `min_depth` products
/// until there are about `enough_teams`. The slices depend on the shape only, never on the device. Products of other
/// kinds have one: a row of theirs does not depend on how many others there are.
constexpr Index enough_teams = 512;
constexpr Index min_depth = 256;
static_assert(min_depth % tile_depth == 0);

/// The parts that one thread may have: on the host a team may be one thread.
constexpr bool on_host = std::is_same_v<Kokkos::DefaultExecutionSpace::memory_space, Kokkos::HostSpace>;
constexpr int parts_per_thread = on_host ? parts : 1;

/// A team's scratch: rows of op(a) and of op(b) in one part of k. The rows of op(a) are longer by one element, so that
/// threads which read a column use different banks of a device's memory.
template <class Real>
struct Factors {
  Real left[tile][tile_depth + 1];
  Real right[tile_depth][tile];
};

template <class A, class B, class C>
struct Product {
  using Real = kernels::ArithmeticType<A>;

  Index m, n, k;
  Oriented<A> a;
  Oriented<B> b;
  kernels::Rows<C> c;
  Real const* bias;
  bool accumulate;
  Index slices, slice_depth;  ///< parts of k, by teams of their own
  Real* partial = nullptr;    ///< [slices, m, n] if there are several

  Product(GemmCall const& call, GemmProblem const& problem)
      : m(problem.m),
        n(problem.n),
        k(problem.k),
        a(call.a, problem.transpose_a),
        b(call.b, problem.transpose_b),
        c(kernels::rows_of<C>(call.c)),
        bias(kernels::rows_of<Real>(call.bias).data),
        accumulate(problem.accumulate) {
    Index const max = problem.transpose_a ? std::max<Index>(k / min_depth, 1) : 1;
    Index const wanted = std::clamp<Index>(enough_teams / std::max<Index>(tiles(), 1), 1, max);
    slice_depth = ((k + wanted - 1) / wanted + tile_depth - 1) / tile_depth * tile_depth;
    slices = k > 0 ? (k + slice_depth - 1) / slice_depth : 1;
  }

  KOKKOS_INLINE_FUNCTION Index tiles_across() const { return (n + tile - 1) / tile; }
  KOKKOS_INLINE_FUNCTION Index tiles() const { return (m + tile - 1) / tile * tiles_across(); }

  KOKKOS_INLINE_FUNCTION Real left(Index i, Index p) const {
    return i < m && p < k ? kernels::wide<Real>(a.data[i * a.row_stride + p * a.column_stride]) : Real{0};
  }
  KOKKOS_INLINE_FUNCTION Real right(Index p, Index j) const {
    return p < k && j < n ? kernels::factor<A>(b.data[p * b.row_stride + j * b.column_stride]) : Real{0};
  }

  /// Copies one part of k; neighbouring threads read neighbouring elements in memory.
  KOKKOS_INLINE_FUNCTION void copy(Member const& team, Index row, Index column, Index depth,
                                   Factors<Real>& factors) const {
    for (int e = team.team_rank(); e < tile * tile_depth; e += team.team_size()) {
      bool const down = a.row_stride == 1;
      int const i = down ? e % tile : e / tile_depth;
      int const p = down ? e / tile : e % tile_depth;
      factors.left[i][p] = left(row + i, depth + p);
      bool const along = b.column_stride == 1;
      int const q = along ? e / tile : e % tile_depth;
      int const j = along ? e % tile : e / tile_depth;
      factors.right[q][j] = right(depth + q, column + j);
    }
  }

  /// One element of c from its sum: = or +=, with the bias if there is one.
  KOKKOS_INLINE_FUNCTION void store(Index i, Index j, Real sum) const {
    C& to = c[i][j];
    Real const before = accumulate ? kernels::wide<Real>(to) : Real{0};
    to = kernels::narrow<C>(before + sum + (bias != nullptr ? bias[j] : Real{0}));
  }
  /// One element of a slice's sums, which may lie outside of c.
  KOKKOS_INLINE_FUNCTION void store_slice(Index slice, Index i, Index j, Real sum) const {
    if (i < m && j < n) {
      if (partial != nullptr) {
        partial[(slice * m + i) * n + j] = sum;
      } else {
        store(i, j, sum);
      }
    }
  }
};

/// The sums of a thread's parts of the tile.
template <class Real>
class PartSums {
 public:
  KOKKOS_INLINE_FUNCTION explicit PartSums(Member const& team) : first_(team.team_rank()), step_(team.team_size()) {}

  KOKKOS_INLINE_FUNCTION void add(Factors<Real> const& factors) {
    for_each_part([&](int row, int column, Real(&sums)[micro][micro]) {
      for (int p = 0; p < tile_depth; ++p) {
        for (int i = 0; i < micro; ++i) {
          for (int j = 0; j < micro; ++j) {
            sums[i][j] += factors.left[row + i][p] * factors.right[p][column + parts_across * j];
          }
        }
      }
    });
  }
  template <class Store>
  KOKKOS_INLINE_FUNCTION void store(Store const& store_element) {
    for_each_part([&](int row, int column, Real(&sums)[micro][micro]) {
      for (int i = 0; i < micro; ++i) {
        for (int j = 0; j < micro; ++j) {
          store_element(row + i, column + parts_across * j, sums[i][j]);
        }
      }
    });
  }

 private:
  /// Calls `body(first row, first column, sums)` for each part.
  template <class Body>
  KOKKOS_INLINE_FUNCTION void for_each_part(Body const& body) {
    for (int own = 0; own < parts_per_thread; ++own) {
      int const part = first_ + own * step_;
      if (part < parts) {
        body(part / parts_across * micro, part % parts_across, sums_[own]);
      }
    }
  }

  int first_, step_;
  Real sums_[parts_per_thread][micro][micro] = {};
};

/// A team's work: one tile of c, or one slice of its sums.
template <class A, class B, class C>
struct TileWork {
  using Real = kernels::ArithmeticType<A>;

  Product<A, B, C> product;

  KOKKOS_INLINE_FUNCTION void operator()(Member const& team) const {
    Index const of_slice = team.league_rank() % product.tiles();
    Index const slice = team.league_rank() / product.tiles();
    Index const row = of_slice / product.tiles_across() * tile;
    Index const column = of_slice % product.tiles_across() * tile;
    Index const begin = slice * product.slice_depth;
    Index const end = begin + product.slice_depth < product.k ? begin + product.slice_depth : product.k;
    auto& factors = *static_cast<Factors<Real>*>(team.team_scratch(0).get_shmem_aligned(sizeof(Factors<Real>), 64));
    PartSums<Real> sums(team);
    for (Index depth = begin; depth < end; depth += tile_depth) {
      product.copy(team, row, column, depth, factors);
      team.team_barrier();
      sums.add(factors);
      team.team_barrier();
    }
    sums.store([&](int i, int j, Real sum) { product.store_slice(slice, row + i, column + j, sum); });
  }
};

/// c from the sums of its slices, which are added in order.
template <class A, class B, class C>
void add_slices(Execution& execution, Product<A, B, C> const& product) {
  kernels::for_each(
      execution, "gemm slices", product.m * product.n, KOKKOS_LAMBDA(Index element) {
        kernels::ArithmeticType<A> sum = 0;
        for (Index slice = 0; slice < product.slices; ++slice) {
          sum += product.partial[slice * product.m * product.n + element];
        }
        product.store(element / product.n, element % product.n, sum);
      });
}

template <class A, class B, class C>
void run(Execution& execution, GemmCall const& call, GemmProblem const& problem) {
  using Real = kernels::ArithmeticType<A>;
  using Bytes = decltype(decltype(Kokkos::PerTeam(0))::value);  // int or std::size_t, by the version of Kokkos
  ArenaScope const scope(execution.scratch);
  TileWork<A, B, C> work{Product<A, B, C>(call, problem)};
  Product<A, B, C>& product = work.product;
  if (product.slices > 1) {
    product.partial = execution.scratch.allocate(DTypeOf<Real>::value, Shape{product.slices, product.m, product.n})
                          .template data<Real>();
  }
  auto const scratch = static_cast<Bytes>(sizeof(Factors<Real>) + 64);
  auto const policy = [&](int teams, int threads) {
    return Policy(execution.space, teams, threads).set_scratch_size(0, Kokkos::PerTeam(scratch));
  };
  if (product.tiles() > 0) {
    int const threads = on_host ? std::min(parts, policy(1, 1).team_size_max(work, Kokkos::ParallelForTag{})) : parts;
    Kokkos::parallel_for(kernels::loop_name("gemm"),
                         policy(static_cast<int>(product.slices * product.tiles()), threads), work);
    if (product.slices > 1) {
      add_slices(execution, product);
    }
  }
}

/// Products for devices without a vendor's library: tiles in a team's scratch, sums in its threads' registers.
class TeamGemm final : public Gemm {
 public:
  bool supports(GemmProblem const& problem) const override { return kernels::has_gemm_types(problem); }

  void multiply(Execution& execution, GemmCall const& call) override {
    GemmProblem const problem = call.problem();
    kernels::with_gemm_types(problem,
                             [&]<class A, class B, class C>(A, B, C) { run<A, B, C>(execution, call, problem); });
  }
};

}  // namespace

void add_team_gemm_kernels(KernelRegistries& registries) {
  registries.of<Gemm>().add("teams", priorities::teams(), std::make_shared<TeamGemm>());
}

}  // namespace heddle
