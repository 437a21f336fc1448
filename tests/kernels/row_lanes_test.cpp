#include <heddle/core/operations/row_lanes.hpp>

#include "kernel_fixture.hpp"

// The rows of team kernels, computed by the lanes of one thread and by whole teams. With several threads of the host
// (the openmp preset) teams have several threads.

namespace heddle {
namespace {

using kernels::ColumnGroup;
using kernels::RowLanes;

/// Row lengths: none, less than a group, groups with and without a rest, and the longest of one thread and beyond.
constexpr std::array<std::int64_t, 8> lengths{0, 1, 7, 8, 67, 512, kernels::longest_of_thread, kernels::whole_team + 4};

class RowLanesTest : public KernelTest {};

// A device's compiler takes no kernel in a test's body, which is a private function.

/// visits [rows, columns] += 1 + the number of the row.
void visit(Execution& execution, Tensor const& visits) {
  auto const rows = kernels::rows_of<float>(visits);
  std::int64_t const columns = visits.dim(1);
  kernels::for_each_row(
      execution, "visits", visits.dim(0), columns, KOKKOS_LAMBDA(std::int64_t row, RowLanes const& lanes) {
        lanes.for_each_group(columns, [&](ColumnGroup const& at) {
          at.for_each([&](int i) { rows[row][at.begin + i] += static_cast<float>(row + 1); });
        });
      });
}

/// sums [rows, 3]: two lanes write (row + 1) * Σ column, one adds twice that number.
void sum_columns(Execution& execution, std::int64_t columns, Tensor const& sums) {
  auto const rows = kernels::rows_of<double>(sums);
  kernels::for_each_row(
      execution, "sums", sums.dim(0), columns, KOKKOS_LAMBDA(std::int64_t row, RowLanes const& lanes) {
        auto const sum = lanes.template reduce_groups<kernels::Sum<double>>(
            columns, [&](ColumnGroup const& at, kernels::Sum<double>& partial) {
              at.for_each([&](int i) { partial.value += static_cast<double>((row + 1) * (at.begin + i)); });
            });
        lanes.for_each(2, [&](std::int64_t i) { rows[row][i] = sum.value; });
        lanes.once([&] { rows[row][2] += 2 * sum.value; });
      });
}

/// The rule's multipliers by groups and one by one.
void write_multipliers(Execution& execution, kernels::DropoutRule const& rule, Tensor const& by_groups,
                       Tensor const& one_by_one) {
  auto const rows = kernels::rows_of<double>(by_groups);
  auto const expected = kernels::rows_of<double>(one_by_one);
  std::int64_t const columns = by_groups.dim(1);
  kernels::for_each_row(
      execution, "multipliers", by_groups.dim(0), columns, KOKKOS_LAMBDA(std::int64_t row, RowLanes const& lanes) {
        lanes.for_each_group(columns, [&](ColumnGroup const& at) {
          at.store(at.template multipliers<double>(rule, row), rows[row]);
          at.for_each([&](int i) { expected[row][at.begin + i] = rule.multiplier(row, at.begin + i); });
        });
      });
}

TEST_F(RowLanesTest, EveryGroupOfEveryRowIsVisitedOnce) {
  for (std::int64_t const columns : lengths) {
    Tensor const visits = tensor_of(Values(static_cast<std::size_t>(11 * columns)), DType::float32, {11, columns});
    visit(execution_, visits);
    Values expected;
    for (std::int64_t i = 0; i < 11 * columns; ++i) {
      expected.push_back(static_cast<double>(i / columns + 1));
    }
    EXPECT_EQ(values(visits), expected) << columns;
  }
}

TEST_F(RowLanesTest, AllLanesKnowASum) {
  for (std::int64_t const columns : lengths) {
    Tensor const sums = Tensor::allocate(DType::float64, {5, 3});
    sum_columns(execution_, columns, sums);
    Values expected;
    for (std::int64_t row = 1; row <= 5; ++row) {
      auto const sum = static_cast<double>(row * columns * (columns - 1) / 2);
      expected.insert(expected.end(), {sum, sum, 2 * sum});
    }
    EXPECT_EQ(values(sums), expected) << columns;
  }
}

/// Copies a matrix by groups, twice each element.
template <class Element>
void double_by_groups(Execution& execution, Tensor const& from, Tensor const& to) {
  using Real = kernels::ArithmeticType<Element>;
  auto const sources = kernels::rows_of<Element>(from);
  auto const targets = kernels::rows_of<Element>(to);
  std::int64_t const columns = from.dim(1);
  kernels::for_each_row(
      execution, "copy", from.dim(0), columns, KOKKOS_LAMBDA(std::int64_t row, RowLanes const& lanes) {
        lanes.for_each_group(columns, [&](ColumnGroup const& at) {
          auto group = at.template load<Real>(sources[row]);
          for (int i = 0; i < kernels::group_columns; ++i) {
            group[i] *= 2;
          }
          at.store(group, targets[row]);
        });
      });
}

TEST_F(RowLanesTest, GroupsAreReadAndWrittenAtAnyAddress) {
  for (DType const dtype : {DType::float32, DType::float64, DType::bfloat16}) {
    for (std::int64_t const padding : {0, 1, 8}) {
      for (std::int64_t const first : {0, 1, 8}) {
        Values const numbers = random_values(3 * 42, 1);
        Tensor const from = strided_tensor(numbers, dtype, {3, 42}, padding);
        Tensor const to = strided_tensor(Values(3 * 42, 77.0), dtype, {3, 42}, padding);
        kernels::with_floating(dtype, [&]<class Element>(Element) {
          double_by_groups<Element>(execution_, from.columns(first, 33), to.columns(first, 33));
        });
        Values const written = values(to);
        for (std::int64_t i = 0; i < 3 * 42; ++i) {
          std::int64_t const column = i % 42;
          bool const inside = column >= first && column < first + 33;
          auto const at = static_cast<std::size_t>(i);
          ASSERT_EQ(written[at], inside ? 2 * numbers[at] : 77.0) << name_of(dtype) << " " << padding << " " << i;
        }
        expect_padding_untouched(to, "rows of groups");
      }
    }
  }
}

TEST_F(RowLanesTest, GroupsHaveTheMultipliersOfDropoutsRule) {
  for (std::int32_t const first_column : {0, 8, 5}) {
    Dropout dropout = dropout_of(0.4F, 6);
    dropout.first_column = first_column;
    Tensor const factors = Tensor::allocate(DType::float64, {6, 45});
    Tensor const expected = Tensor::allocate(DType::float64, {6, 45});
    write_multipliers(execution_, kernels::DropoutRule(dropout), factors, expected);
    expect_same_bits(factors, expected, "multipliers");
    Values const both = values(factors);
    EXPECT_GT(std::count(both.begin(), both.end(), 0.0), 50);
  }
}

}  // namespace
}  // namespace heddle
