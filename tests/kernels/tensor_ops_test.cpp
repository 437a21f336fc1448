#include <algorithm>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/core/tensor/doubles.hpp>

#include "kernel_fixture.hpp"

namespace heddle {
namespace {

std::vector<DType> const floating{DType::float32, DType::float64, DType::bfloat16};
constexpr std::int64_t rows = 301;
constexpr std::int64_t columns = 67;

class TensorOpsTest : public BuiltInKernelsTest {
 protected:
  static Tensor matrix(DType dtype, std::uint64_t seed, std::int64_t padding = 0) {
    return strided_tensor(random_values(rows * columns, seed), dtype, Shape{rows, columns}, padding);
  }

  template <class Check>
  void for_each(Check&& check) {
    for (auto const& entry : registries_.of<TensorOps>().entries()) {
      for (DType const dtype : floating) {
        ASSERT_TRUE(entry.kernel->supports({dtype}));
        check(*entry.kernel, dtype, entry.name + " " + std::string(name_of(dtype)));
        ASSERT_FALSE(HasFailure());
      }
    }
  }
};

TEST_F(TensorOpsTest, FillLeavesThePaddingAlone) {
  for_each([&](TensorOps& ops, DType dtype, std::string const& what) {
    Tensor const strided = matrix(dtype, 1, 5);
    ops.fill(execution_, strided, 2.5);
    EXPECT_EQ(values(strided), Values(rows * columns, 2.5)) << what;
    expect_padding_untouched(strided, what);
    Tensor const vector = Tensor::allocate(dtype, Shape{9001});
    ops.fill(execution_, vector, -1);
    EXPECT_EQ(values(vector), Values(9001, -1.0)) << what;
  });
}

TEST_F(TensorOpsTest, AddWithStridedRows) {
  for_each([&](TensorOps& ops, DType dtype, std::string const& what) {
    Tensor const into = matrix(dtype, 1, 5);
    Tensor const from = matrix(dtype, 2, 2);
    Values sums = values(into);
    Values const added = values(from);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      sums[i] += added[i];
    }
    ops.add(execution_, into, from);
    EXPECT_EQ(values(into), values(tensor_of(sums, dtype, into.shape()))) << what;
    expect_padding_untouched(into, what);
  });
}

TEST_F(TensorOpsTest, MixWithStridedRows) {
  for_each([&](TensorOps& ops, DType dtype, std::string const& what) {
    Tensor const into = matrix(dtype, 1, 5);
    Tensor const from = matrix(dtype, 2, 2);
    Values mixed = values(into);
    Values const other = values(from);
    for (std::size_t i = 0; i < mixed.size(); ++i) {
      mixed[i] += 0.3 * (other[i] - mixed[i]);
    }
    Tensor const share = from_doubles({0.3}, DType::float64, {1});
    ops.mix(execution_, into, from, share);
    expect_values(into, mixed, dtype, what);
    expect_padding_untouched(into, what);
    ops.mix(execution_, into, from, from_doubles({1}, DType::float64, {1}));
    expect_values(into, other, dtype, what + ", all of it");
  });
}

TEST_F(TensorOpsTest, CopyConvertsBetweenAnyTwoTypes) {
  Values const numbers = random_values(rows * columns, 1, -100, 100);
  for_each([&](TensorOps& ops, DType from, std::string const& what) {
    Tensor const source = strided_tensor(numbers, from, Shape{rows, columns}, 3);
    for (DType const to : floating) {
      Tensor const target = matrix(to, 2, 5);
      ops.copy(execution_, source, target);
      expect_same_bits(converted(target, to), converted(source, to), what.c_str());
      expect_padding_untouched(target, what);
      Tensor const column = Tensor::allocate(to, Shape{rows, 1});
      ops.copy(execution_, source.columns(4, 1), column);
      expect_same_bits(column, converted(source.columns(4, 1), to), what.c_str());
    }
  });
}

TEST_F(TensorOpsTest, AddColumnSums) {
  for_each([&](TensorOps& ops, DType dtype, std::string const& what) {
    Tensor const summands = matrix(dtype, 1, 3);
    Values const elements = values(summands);
    Values expected = random_values(columns, 2);
    Tensor const sums = tensor_of(expected, statistics_dtype(dtype), Shape{columns});
    for (std::size_t i = 0; i < elements.size(); ++i) {
      expected[i % columns] += elements[i];
    }
    ops.add_column_sums(execution_, summands, sums);
    expect_values(sums, expected, statistics_dtype(dtype), what);
  });
}

TEST_F(TensorOpsTest, SumOfSquaresIsPreciseAndRepeatable) {
  for_each([&](TensorOps& ops, DType dtype, std::string const& what) {
    for (std::int64_t const size : {std::int64_t{0}, std::int64_t{1}, std::int64_t{4096}, std::int64_t{12301}}) {
      Tensor const tensor = random_tensor(dtype, Shape{size}, 1);
      double expected = 0;
      for (double const value : values(tensor)) {
        expected += value * value;
      }
      auto const sum_of_squares = [&] {
        Tensor const result = Tensor::allocate(DType::float64, {1});
        ops.add_sum_of_squares(execution_, tensor, result);
        return values(result).front();
      };
      double const sum = sum_of_squares();
      EXPECT_NEAR(sum, expected, 1e-9) << what;
      EXPECT_EQ(sum, sum_of_squares()) << what;
      Tensor const added = from_doubles({1000}, DType::float64, {1});
      ops.add_sum_of_squares(execution_, tensor, added);
      EXPECT_EQ(values(added), std::vector<double>{1000 + sum}) << what;
      EXPECT_EQ(scratch_.mark(), 0U);
    }
  });
}

TEST_F(TensorOpsTest, GatherRows) {
  for_each([&](TensorOps& ops, DType dtype, std::string const& what) {
    Tensor const from = matrix(dtype, 1);
    std::vector<std::int32_t> const index{300, 0, 5, 5, 17};
    Tensor const to = Tensor::allocate(dtype, Shape{5, columns});
    ops.gather_rows(execution_, from, int_tensor(index), to);
    for (std::size_t i = 0; i < index.size(); ++i) {
      EXPECT_EQ(values(to.rows(static_cast<std::int64_t>(i), 1)), values(from.rows(index[i], 1))) << what;
    }
    // Strided rows on both sides, as in decoding caches: elements between the rows stay unchanged.
    Tensor const wide = Tensor::allocate(dtype, Shape{5, columns});
    ops.gather_rows(execution_, from.columns(3, 4), int_tensor(index), wide.columns(1, 4));
    for (std::size_t i = 0; i < index.size(); ++i) {
      auto const gathered = values(wide.rows(static_cast<std::int64_t>(i), 1));
      auto const source = values(from.rows(index[i], 1));
      EXPECT_TRUE(std::equal(source.begin() + 3, source.begin() + 7, gathered.begin() + 1)) << what;
      EXPECT_EQ(gathered[0], 0) << what;
      EXPECT_EQ(gathered[5], 0) << what;
    }
  });
}

TEST_F(TensorOpsTest, CopyRowsToPlaces) {
  for_each([&](TensorOps& ops, DType dtype, std::string const& what) {
    Tensor const from = matrix(dtype, 1);
    Tensor const to = Tensor::allocate(dtype, Shape{7, columns});
    ops.copy_rows(execution_, from.rows(0, 3), Tensor(), to, int_tensor({6, 1, 3}));
    ops.copy_rows(execution_, from, int_tensor({300, 17}), to, int_tensor({0, 5}));
    ops.copy_rows(execution_, to, int_tensor({6, 0}), to, int_tensor({2, 4}));  // in one matrix
    std::vector<std::int64_t> const expected{300, 1, 0, 2, 300, 17, 0};
    for (std::int64_t row = 0; row < 7; ++row) {
      std::int64_t const source = expected[static_cast<std::size_t>(row)];
      EXPECT_EQ(values(to.rows(row, 1)), values(from.rows(source, 1))) << what << ", row " << row;
    }
  });
}

/// Columns of pairs, in each group of `width`, with the first numbers of all pairs before the second ones.
Values in_halves(Values const& interleaved, std::size_t width) {
  Values moved(interleaved.size());
  for (std::size_t i = 0; i < moved.size(); ++i) {
    std::size_t const column = i % width;
    moved[i - column + column / 2 + (column % 2) * (width / 2)] = interleaved[i];
  }
  return moved;
}

TEST_F(TensorOpsTest, RotateTurnsPairsOfColumnsByTheirPosition) {
  constexpr std::int64_t width = 6;
  constexpr std::int64_t groups = 5;
  std::vector<std::int32_t> position;
  for (std::int32_t row = 0; row < rows; ++row) {
    position.push_back(row * 7 % 40);
  }
  Values const angles = random_values(40 * width / 2, 3, 0, 7);
  Values table;
  for (double const angle : angles) {
    table.push_back(std::cos(angle));
    table.push_back(std::sin(angle));
  }
  for_each([&](TensorOps& ops, DType dtype, std::string const& what) {
    Tensor matrix = strided_tensor(random_values(rows * groups * width, 1), dtype, Shape{rows, groups * width}, 3);
    Values const before = values(matrix);
    Tensor const angles_of = tensor_of(table, statistics_dtype(dtype), Shape{40, width});
    Values expected;
    for (std::size_t pair = 0; pair < before.size() / 2; ++pair) {
      std::size_t const row = pair / (groups * width / 2);
      std::size_t const place = (static_cast<std::size_t>(position[row]) * width + 2 * pair % width);
      expected.push_back(before[2 * pair] * table[place] - before[2 * pair + 1] * table[place + 1]);
      expected.push_back(before[2 * pair] * table[place + 1] + before[2 * pair + 1] * table[place]);
    }
    Rotation rotation{int_tensor(position), angles_of};
    ops.rotate(execution_, matrix, rotation);
    expect_values(matrix, expected, dtype, what);
    rotation.back = true;
    ops.rotate(execution_, matrix, rotation);
    expect_values(matrix, before, dtype, what + ", back");
    expect_padding_untouched(matrix, what);
    EXPECT_THROW(ops.rotate(execution_, matrix.columns(0, 4), rotation), Error);
    // The same pairs with their numbers in the two halves of a group.
    rotation = {int_tensor(position), angles_of, PairLayout::halves};
    matrix = strided_tensor(in_halves(before, width), dtype, Shape{rows, groups * width}, 3);
    ops.rotate(execution_, matrix, rotation);
    expect_values(matrix, in_halves(expected, width), dtype, what + ", halves");
    rotation.back = true;
    ops.rotate(execution_, matrix, rotation);
    expect_values(matrix, in_halves(before, width), dtype, what + ", halves, back");
  });
}

TEST_F(TensorOpsTest, ColumnsAreGatheredAndTheirGradientsAddedUp) {
  std::vector<std::int32_t> const index{3, 0, 0, 2, 3, 3, 0};
  for_each([&](TensorOps& ops, DType dtype, std::string const& what) {
    Tensor const from = tensor_of(random_values(5 * 4, 1), dtype, Shape{5, 4});
    Tensor const to = Tensor::allocate(dtype, Shape{5, 7});
    ops.gather_columns(execution_, from, int_tensor(index), to);
    Values const source = values(from);
    Values gathered;
    for (std::size_t row = 0; row < 5; ++row) {
      for (std::int32_t const column : index) {
        gathered.push_back(source[4 * row + static_cast<std::size_t>(column)]);
      }
    }
    EXPECT_EQ(values(to), gathered) << what;

    Tensor const gradient = tensor_of(random_values(5 * 7, 2), dtype, Shape{5, 7});
    Tensor const into = tensor_of(random_values(5 * 4, 3), dtype, Shape{5, 4});
    Values expected = values(into);
    Values const added = values(gradient);
    for (std::size_t i = 0; i < added.size(); ++i) {
      expected[i / 7 * 4 + static_cast<std::size_t>(index[i % 7])] += added[i];
    }
    ops.add_gathered_columns(execution_, gradient, int_tensor(index), into);
    expect_values(into, expected, dtype, what);
    EXPECT_THROW(ops.gather_columns(execution_, from, int_tensor({0, 1}), to), Error) << what;
    EXPECT_THROW(ops.add_gathered_columns(execution_, gradient.rows(0, 4), int_tensor(index), into), Error) << what;
  });
}

TEST_F(TensorOpsTest, CappedValuesAndTheirGradients) {
  constexpr double limit = 0.7;
  for_each([&](TensorOps& ops, DType dtype, std::string const& what) {
    Tensor const capped = matrix(dtype, 1, 3);
    Tensor const gradient = matrix(dtype, 2, 5);
    Values expected = values(capped);
    Values slopes = values(gradient);
    std::ranges::transform(expected, expected.begin(), [](double each) { return limit * std::tanh(each / limit); });
    ops.cap(execution_, capped, limit);
    expect_values(capped, expected, dtype, what);
    expect_padding_untouched(capped, what);
    Values const results = values(capped);
    for (std::size_t i = 0; i < slopes.size(); ++i) {
      slopes[i] *= 1 - results[i] * results[i] / (limit * limit);
    }
    ops.cap_backward(execution_, capped, gradient, limit);
    expect_values(gradient, slopes, dtype, what);
    expect_padding_untouched(gradient, what);
    EXPECT_THROW(ops.cap_backward(execution_, capped.rows(0, 1), gradient, limit), Error) << what;
  });
}

TEST_F(TensorOpsTest, WhatDoesNotFitIsAnError) {
  for_each([&](TensorOps& ops, DType dtype, std::string const&) {
    Tensor const two = Tensor::allocate(dtype, Shape{2, 3});
    Tensor const three = Tensor::allocate(dtype, Shape{3, 2});
    EXPECT_THROW(ops.add(execution_, two, three), Error);
    EXPECT_THROW(ops.copy(execution_, two, three), Error);
    EXPECT_THROW(ops.add_sum_of_squares(execution_, two.columns(0, 2), Tensor::allocate(DType::float64, {1})), Error);
    EXPECT_THROW(ops.add_sum_of_squares(execution_, two, Tensor::allocate(DType::float64, {2})), Error);
    EXPECT_THROW(ops.gather_rows(execution_, two, int_tensor({0, 1, 1}), three), Error);
    EXPECT_THROW(ops.copy_rows(execution_, two, int_tensor({0, 1}), two, int_tensor({1})), Error);
    EXPECT_THROW(ops.copy_rows(execution_, two, Tensor(), two, int_tensor({1})), Error);
  });
}

}  // namespace
}  // namespace heddle
