#pragma once

#include <algorithm>

#include "tiles.hpp"

// Stands before a loop of a fixed length whose variables are to stay in a device's registers.
#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)
#define HEDDLE_UNROLL _Pragma("unroll")
#else
#define HEDDLE_UNROLL
#endif

/// Tiles that a team of threads computes together, for the attention of devices: blocks of 32 queries and 32 keys.
namespace heddle::kernels::team_attention {

using Policy = Kokkos::TeamPolicy<Kokkos::DefaultExecutionSpace>;
using Member = Policy::member_type;

constexpr int block = 32;
/// A device's threads of a team.
constexpr int team_threads = 128;

KOKKOS_INLINE_FUNCTION Block block_at(std::int64_t begin, std::int64_t length) {
  return {begin, length - begin < block ? length - begin : block};
}

/// A tile of `block` rows in a team's scratch. Rows are longer by one element, so that threads which read a column
/// use different banks of a device's memory.
template <class Real>
struct TeamTile {
  Real* data = nullptr;
  int stride = 0;

  KOKKOS_INLINE_FUNCTION Real& operator()(int row, int column) const { return data[row * stride + column]; }

  static std::int64_t elements(std::int64_t columns) { return block * (columns + 1); }
};

/// A team at work on one head: its threads share the elements of tiles.
template <class Element>
struct HeadTeam {
  using Real = ArithmeticType<Element>;

  Member const& member;
  AttentionHead<Element> head;
  int head_dim;
  Real* next;  ///< free scratch

  KOKKOS_INLINE_FUNCTION HeadTeam(Member const& team, AttentionHead<Element> const& of_head, int level,
                                  std::size_t bytes)
      : member(team),
        head(of_head),
        head_dim(static_cast<int>(of_head.view.head_dim)),
        next(static_cast<Real*>(
            team.team_scratch(level).get_shmem_aligned(static_cast<std::ptrdiff_t>(bytes), alignof(double)))) {}

  KOKKOS_INLINE_FUNCTION TeamTile<Real> tile(int columns) {
    TeamTile<Real> const result{next, columns + 1};
    next += block * (columns + 1);
    return result;
  }
  KOKKOS_INLINE_FUNCTION void wait() const { member.team_barrier(); }

  /// Calls `body(row, column)` for all elements of a block of rows; neighbouring threads have neighbouring columns.
  template <class Body>
  KOKKOS_INLINE_FUNCTION void for_each_element(int columns, Body const& body) const {
    for (int e = member.team_rank(); e < block * columns; e += member.team_size()) {
      body(e / columns, e % columns);
    }
  }
  /// Calls `body(row)` for the rows of a block.
  template <class Body>
  KOKKOS_INLINE_FUNCTION void for_each_row(Body const& body) const {
    for (int row = member.team_rank(); row < block; row += member.team_size()) {
      body(row);
    }
  }

  KOKKOS_INLINE_FUNCTION void clear(TeamTile<Real> to) const {
    for_each_element(head_dim, [&](int row, int d) { to(row, d) = 0; });
  }
  /// to = scale * rows first, first + 1, … of `from`; zeros beyond `count`.
  KOKKOS_INLINE_FUNCTION void load(Rows<Element> const& from, std::int64_t first, std::int64_t count, TeamTile<Real> to,
                                   Real scale = 1) const {
    for_each_element(head_dim, [&](int row, int d) {
      to(row, d) = row < count ? scale * wide<Real>(head.at(from, first + row)[d]) : Real{0};
    });
  }
  /// Rows first … first + count = scale * from, or += it where the call accumulates.
  KOKKOS_INLINE_FUNCTION void store(TeamTile<Real> from, Rows<Element> const& to, std::int64_t first,
                                    std::int64_t count, Real scale = 1) const {
    for_each_element(head_dim, [&](int row, int d) {
      if (row < count) {
        Element& element = head.at(to, first + row)[d];
        Real const before = head.view.accumulate ? wide<Real>(element) : Real{0};
        element = narrow<Element>(before + scale * from(row, d));
      }
    });
  }

  /// Calls `take(row, column, Σ left(row, p) * right(p, column))` for a block of rows; the sums are over `depth`. A
  /// thread computes 2 × 4 of them at a time.
  template <class Left, class Right, class Take>
  KOKKOS_INLINE_FUNCTION void multiply(int columns, int depth, Left const& left, Right const& right,
                                       Take const& take) const {
    constexpr int part_rows = 2;
    constexpr int part_columns = 4;
    int const across = (columns + part_columns - 1) / part_columns;
    for (int part = member.team_rank(); part < block / part_rows * across; part += member.team_size()) {
      int const row = part / across * part_rows;
      int const column = part % across;
      Real sums[part_rows][part_columns] = {};
      for (int p = 0; p < depth; ++p) {
        HEDDLE_UNROLL
        for (int j = 0; j < part_columns; ++j) {
          Real const factor = column + j * across < columns ? right(p, column + j * across) : Real{0};
          HEDDLE_UNROLL
          for (int i = 0; i < part_rows; ++i) {
            sums[i][j] += left(row + i, p) * factor;
          }
        }
      }
      HEDDLE_UNROLL
      for (int i = 0; i < part_rows; ++i) {
        HEDDLE_UNROLL
        for (int j = 0; j < part_columns; ++j) {
          if (column + j * across < columns) {
            take(row + i, column + j * across, sums[i][j]);
          }
        }
      }
    }
  }

  /// scores [queries, keys] = q · k of the pairs that see each other, -infinity elsewhere. `q` is scaled. Waits for
  /// the team.
  KOKKOS_INLINE_FUNCTION void score(Block queries, Block keys, TeamTile<Real> q, TeamTile<Real> k,
                                    TeamTile<Real> scores) const {
    multiply(
        block, head_dim, [&](int i, int d) { return q(i, d); }, [&](int d, int j) { return k(j, d); },
        [&](int i, int j, Real sum) { scores(i, j) = sum; });
    wait();
    for_each_element(block, [&](int i, int j) {
      if (i >= queries.count || j >= keys.count || !head.seeing(keys.begin + j, queries).has(i)) {
        scores(i, j) = -std::numeric_limits<Real>::infinity();
      }
    });
    wait();
  }

  /// The multiplier of dropout for a pair of a query and a key.
  KOKKOS_INLINE_FUNCTION Real kept(Block queries, Block keys, int i, int j) const {
    DropoutRule const& rule = head.view.dropout;
    if (!rule.active || i >= queries.count || j >= keys.count) {
      return 1;
    }
    std::int64_t const position = head.position_of(keys.begin + j);
    std::int64_t const group = ((rule.first_column + head.head) << 20) + position / 8;
    return static_cast<Real>(rule.multiplier(head.query_row + queries.begin + i, group, position % 8));
  }
};

/// A loop over teams, each with scratch of `elements` Reals: in a device's shared memory if it fits there, in global
/// memory otherwise. In float32 and the 40 KiB that Kokkos 4.6 has for it with CUDA, forward fits up to a head_dim of
/// 88, the gradients of queries up to 48, of keys up to 40.
template <class Real, class Body>
void for_each_team(Execution& execution, char const* name, std::int64_t teams, std::int64_t elements,
                   Body const& body) {
  using Bytes = decltype(decltype(Kokkos::PerTeam(0))::value);  // int or std::size_t, by the version of Kokkos
  auto const bytes = static_cast<std::size_t>(elements) * sizeof(Real);
  if (teams == 0) {
    return;
  }
  auto const asked = static_cast<Bytes>(bytes + alignof(double));
  int const level = asked <= static_cast<Bytes>(Policy::scratch_size_max(0)) ? 0 : 1;
  auto const work = KOKKOS_LAMBDA(Member const& member) {
    body(member, level, bytes);
  };
  auto const policy = [&](int league, int threads) {
    return Policy(execution.space, league, threads).set_scratch_size(level, Kokkos::PerTeam(asked));
  };
  int const threads = std::min(team_threads, policy(1, 1).team_size_max(work, Kokkos::ParallelForTag{}));
  Kokkos::parallel_for(loop_name(name), policy(static_cast<int>(teams), threads), work);
}

}  // namespace heddle::kernels::team_attention
