#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <heddle/core/arena.hpp>
#include <heddle/core/execution.hpp>
#include <heddle/core/kernel_registry.hpp>
#include <heddle/core/pack.hpp>
#include <heddle/core/random.hpp>
#include <string>
#include <vector>

/// What tests of kernels share. Numbers are float64 on the host whatever the tensor's dtype.
namespace heddle::test {

using Values = std::vector<double>;

/// How far a result may be from the float64 oracle, relative to 1 + |expected|: stated here for all kernels.
double tolerance(DType dtype);

/// `count` numbers in [low, high), the same for the same seed.
Values random_values(std::int64_t count, std::uint32_t seed, double low = -1, double high = 1);

/// A new tensor with these values, rounded to the dtype.
Tensor make_tensor(DType dtype, Shape const& shape, Values const& values);
/// A matrix whose rows are `padding` elements apart; the padding holds a number that check_padding looks for.
Tensor make_strided(DType dtype, Shape const& shape, std::int64_t padding, Values const& values);
Tensor make_integers(std::vector<std::int32_t> const& integers);
/// A tensor's values; rows may be strided.
Values values_of(Tensor const& tensor);
/// Fails where the elements between the rows of a tensor of make_strided have been written to.
void check_padding(Tensor const& tensor);

/// Fails, naming `what` and the first wrong element, where |actual - expected| > tolerance (1 + |expected|) or NaN.
void expect_near(Values const& actual, Values const& expected, double tolerance, std::string const& what);

/// d function / d values by central differences.
Values numeric_gradient(std::function<double(Values const&)> const& function, Values values, double step = 1e-5);

/// Σ left * right: turns an output and a fixed direction into a scalar to differentiate.
double dot(Values const& left, Values const& right);

/// Packed sequences of these lengths: row r of sequence i has sample 3 i + 1 and position r.
TokenRows make_rows(std::vector<std::int32_t> const& lengths);
/// Dropout of a matrix with these rows; its sample and position are the rows'.
Dropout make_dropout(TokenRows const& rows, float rate, std::int32_t first_column = 0);

/// Kernels to test and what they run with.
class KernelTest : public testing::Test {
 protected:
  KernelTest();

  Arena scratch{std::size_t{1} << 30};
  Execution execution{Kokkos::DefaultExecutionSpace(), scratch};
  KernelRegistries registries;
};

}  // namespace heddle::test
