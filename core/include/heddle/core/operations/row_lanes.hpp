#pragma once

#include <algorithm>
#include <heddle/core/operations/kernel_author.hpp>

/// Rows that several threads compute together, for kernels on devices: a row is a team's, not a thread's. Neighbouring
/// threads read neighbouring columns, in loads of 16 bytes where the row allows them.
namespace heddle::kernels {

/// Consecutive columns that one lane computes at a time: those that one batch of random words decides, and 16 bytes of
/// bfloat16, a device's widest load.
constexpr int group_columns = 8;

/// A group's elements in a lane's registers.
template <class Real>
struct GroupValues {
  Real values[group_columns];

  KOKKOS_INLINE_FUNCTION Real& operator[](int i) { return values[i]; }
  KOKKOS_INLINE_FUNCTION Real operator[](int i) const { return values[i]; }
};

/// Where a group lies in a row: columns [begin, begin + count), count ≤ group_columns.
struct ColumnGroup {
  std::int64_t begin;
  int count;

  KOKKOS_INLINE_FUNCTION ColumnGroup(std::int64_t index, std::int64_t columns)
      : begin(index * group_columns),
        count(columns - begin < group_columns ? static_cast<int>(columns - begin) : group_columns) {}

  /// Calls `body(i)` for 0 ≤ i < count. The loop has a fixed length, so that groups stay in registers.
  template <class Body>
  KOKKOS_INLINE_FUNCTION void for_each(Body const& body) const {
    for (int i = 0; i < group_columns; ++i) {
      if (i < count) {
        body(i);
      }
    }
  }

  /// The group of a row, as Real; 0 beyond its end.
  template <class Real, class Element>
  KOKKOS_INLINE_FUNCTION GroupValues<Real> load(Element const* row) const {
    GroupValues<Real> result{};
    if (is_whole(row)) {
      Element elements[group_columns];
      void const* const place = row + begin;
      __builtin_memcpy(elements, __builtin_assume_aligned(place, alignment), sizeof(elements));
      for (int i = 0; i < group_columns; ++i) {
        result[i] = wide<Real>(elements[i]);
      }
    } else {
      for_each([&](int i) { result[i] = wide<Real>(row[begin + i]); });
    }
    return result;
  }
  /// The group of a row, as Real; where the row is null, every element is `otherwise`.
  template <class Real, class Element>
  KOKKOS_INLINE_FUNCTION GroupValues<Real> load_or(Real otherwise, Element const* row) const {
    if (row != nullptr) {
      return load<Real>(row);
    }
    GroupValues<Real> result;
    for (int i = 0; i < group_columns; ++i) {
      result[i] = otherwise;
    }
    return result;
  }
  /// row[begin + i] = the Element nearest to group[i].
  template <class Element, class Real>
  KOKKOS_INLINE_FUNCTION void store(GroupValues<Real> const& group, Element* row) const {
    if (is_whole(row)) {
      Element elements[group_columns];
      for (int i = 0; i < group_columns; ++i) {
        elements[i] = narrow<Element>(group[i]);
      }
      void* const place = row + begin;
      __builtin_memcpy(__builtin_assume_aligned(place, alignment), elements, sizeof(elements));
    } else {
      for_each([&](int i) { row[begin + i] = narrow<Element>(group[i]); });
    }
  }

  /// Multipliers of dropout for the group's elements of `row`; 1 where dropout is off.
  template <class Real>
  KOKKOS_INLINE_FUNCTION GroupValues<Real> multipliers(DropoutRule const& dropout, std::int64_t row) const {
    GroupValues<Real> result;
    std::int64_t const first = dropout.first_column + begin;
    if (dropout.active && first % group_columns == 0) {
      auto const words = dropout.words(row, first / group_columns);
      for (int i = 0; i < group_columns; ++i) {
        std::uint32_t const word = words[static_cast<std::size_t>(i / 2)];
        std::uint32_t const half = i % 2 == 0 ? word & 0xffffU : word >> 16;
        result[i] = half < dropout.threshold ? static_cast<Real>(dropout.scale) : Real{0};
      }
    } else {
      for (int i = 0; i < group_columns; ++i) {
        result[i] = static_cast<Real>(dropout.multiplier(row, begin + i));
      }
    }
    return result;
  }

 private:
  static constexpr std::size_t alignment = 16;

  template <class Element>
  KOKKOS_INLINE_FUNCTION bool is_whole(Element* row) const {
    return count == group_columns && reinterpret_cast<std::uintptr_t>(row + begin) % alignment == 0;
  }
};

KOKKOS_INLINE_FUNCTION std::int64_t group_count(std::int64_t columns) {
  return (columns + group_columns - 1) / group_columns;
}

/// Calls `body(row, group)` for all groups of all rows, in parallel, each by a thread of its own: for passes that need
/// no sums of a row. Neighbouring threads have neighbouring groups.
template <class Body>
void for_each_group(Execution& execution, char const* name, std::int64_t rows, std::int64_t columns, Body const& body) {
  std::int64_t const groups = group_count(columns);
  for_each(
      execution, name, rows * groups,
      KOKKOS_LAMBDA(std::int64_t index) { body(index / groups, ColumnGroup(index % groups, columns)); });
}

/// Reduces values of a class whose default is the neutral element and which has `join(other)`.
template <class Value>
class Joining {
 public:
  using reducer = Joining;
  using value_type = Value;
  using result_view_type = Kokkos::View<Value, Kokkos::AnonymousSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

  KOKKOS_INLINE_FUNCTION explicit Joining(Value& result) : result_(result) {}
  KOKKOS_INLINE_FUNCTION void join(Value& into, Value const& from) const { into.join(from); }
  // Kokkos 3 joins values that other threads have written as volatile ones.
  KOKKOS_INLINE_FUNCTION void join(Value volatile& into, Value const volatile& from) const {
    const_cast<Value&>(into).join(const_cast<Value const&>(from));
  }
  KOKKOS_INLINE_FUNCTION void init(Value& value) const { value = Value{}; }
  KOKKOS_INLINE_FUNCTION Value& reference() const { return result_; }
  KOKKOS_INLINE_FUNCTION result_view_type view() const { return result_view_type(&result_); }
  KOKKOS_INLINE_FUNCTION bool references_scalar() const { return true; }

 private:
  Value& result_;
};

/// A value to sum with `reduce`.
template <class Real>
struct Sum {
  Real value = 0;

  KOKKOS_INLINE_FUNCTION void join(Sum const& other) { value += other.value; }
};

/// The threads that compute one row: the vector lanes of one thread of a team or, for long rows, those of all threads.
/// Their sums have a fixed order. Lanes wait for each other only in `reduce`: no lane may read what another one
/// writes.
class RowLanes {
 public:
  using Member = Kokkos::TeamPolicy<Kokkos::DefaultExecutionSpace>::member_type;

  KOKKOS_INLINE_FUNCTION RowLanes(Member const& member, bool whole_team) : member_(member), whole_team_(whole_team) {}

  /// Calls `body(i)` for 0 ≤ i < count, each by one lane; lane and i are the same in each call with this count.
  template <class Body>
  KOKKOS_INLINE_FUNCTION void for_each(std::int64_t count, Body const& body) const {
    whole_team_ ? Kokkos::parallel_for(Kokkos::TeamVectorRange(member_, count), body)
                : Kokkos::parallel_for(Kokkos::ThreadVectorRange(member_, count), body);
  }
  /// Calls `add(i, partial)` for 0 ≤ i < count and joins the lanes' partial values; all lanes know the result.
  template <class Value, class Add>
  KOKKOS_INLINE_FUNCTION Value reduce(std::int64_t count, Add const& add) const {
    Value result;
    whole_team_ ? Kokkos::parallel_reduce(Kokkos::TeamVectorRange(member_, count), add, Joining<Value>(result))
                : Kokkos::parallel_reduce(Kokkos::ThreadVectorRange(member_, count), add, Joining<Value>(result));
    return result;
  }

  /// Calls `body(group)` for the groups of a row's columns.
  template <class Body>
  KOKKOS_INLINE_FUNCTION void for_each_group(std::int64_t columns, Body const& body) const {
    for_each(group_count(columns), [&](std::int64_t index) { body(ColumnGroup(index, columns)); });
  }
  /// Calls `add(group, partial)` for the groups of a row's columns, and joins the partial values.
  template <class Value, class Add>
  KOKKOS_INLINE_FUNCTION Value reduce_groups(std::int64_t columns, Add const& add) const {
    return reduce<Value>(group_count(columns),
                         [&](std::int64_t index, Value& partial) { add(ColumnGroup(index, columns), partial); });
  }

  /// Calls `body()` by one lane, the same in each call.
  template <class Body>
  KOKKOS_INLINE_FUNCTION void once(Body const& body) const {
    whole_team_ ? Kokkos::single(Kokkos::PerTeam(member_), body) : Kokkos::single(Kokkos::PerThread(member_), body);
  }

 private:
  Member const& member_;
  bool whole_team_;
};

/// A team's work in for_each_row.
template <class Body>
struct RowWork {
  Body body;
  std::int64_t rows;
  bool whole_team;

  KOKKOS_INLINE_FUNCTION void operator()(RowLanes::Member const& member) const {
    std::int64_t const row = whole_team ? std::int64_t{member.league_rank()}
                                        : std::int64_t{member.league_rank()} * member.team_size() + member.team_rank();
    if (row < rows) {
      body(row, RowLanes(member, whole_team));
    }
  }
};

/// Columns of the longest rows that the lanes of one thread compute.
constexpr std::int64_t longest_of_thread = 4096;
/// The length of a row that a whole team is to compute, however long it is.
constexpr std::int64_t whole_team = longest_of_thread + 1;

/// Calls `body(row, lanes)` for 0 ≤ row < rows, in parallel. `columns`, the length of the work in a row, decides how
/// many lanes a row has.
template <class Body>
void for_each_row(Execution& execution, char const* name, std::int64_t rows, std::int64_t columns, Body const& body) {
  using Policy = Kokkos::TeamPolicy<Kokkos::DefaultExecutionSpace>;
  constexpr int vector_lanes = 32;
  constexpr int threads = 8;
  if (rows == 0) {
    return;
  }
  RowWork<Body> const work{body, rows, columns > longest_of_thread};
  int const vector = std::min(vector_lanes, Policy::vector_length_max());
  int const team =
      std::min(threads, Policy(execution.space, 1, 1, vector).team_size_max(work, Kokkos::ParallelForTag{}));
  std::int64_t const teams = work.whole_team ? rows : (rows + team - 1) / team;
  Kokkos::parallel_for(loop_name(name), Policy(execution.space, static_cast<int>(teams), team, vector), work);
}

}  // namespace heddle::kernels
