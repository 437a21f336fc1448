#pragma once

#include <heddle/core/checks/check.hpp>
#include <heddle/core/operations/dropout.hpp>
#include <heddle/core/tensor/arena.hpp>
#include <heddle/core/tensor/execution.hpp>
#include <heddle/core/tensor/pack.hpp>
#include <heddle/core/tensor/tensor.hpp>

#include "test.hpp"

namespace heddle {

/// The base of kernel tests: an Execution during the test. main() has started the Runtime.
class KernelTest : public testing::Test {
 protected:
  Arena scratch_;
  Execution execution_{Kokkos::DefaultExecutionSpace(), scratch_};
};

/// The elements as float64, row major; rows may be strided.
std::vector<double> values(Tensor const& tensor);
/// A new contiguous tensor with these values, rounded to the dtype.
Tensor tensor_of(std::vector<double> const& values, DType dtype, Shape const& shape);
Tensor int_tensor(std::vector<std::int32_t> const& values);
/// The same values in another dtype, contiguous.
Tensor converted(Tensor const& tensor, DType dtype);

/// Uniform numbers from [low, high) that are exact in bfloat16, so that every dtype computes with the same inputs.
Tensor random_tensor(DType dtype, Shape const& shape, std::uint64_t seed, double low = -1, double high = 1);

/// Fails if a value is further than tolerance(dtype) of checks/check.hpp from the expected one; infinities must be
/// equal, NaN never is.
void expect_close(Tensor const& actual, Tensor const& expected, DType dtype, char const* what);

/// Fails unless both have the same bytes.
void expect_same_bits(Tensor const& actual, Tensor const& expected, char const* what);

/// Compares `gradient` with central differences of `loss` in the float64 tensor `variable`, which may be strided and
/// is restored. `gradient` may have `already` added everywhere, to show that a kernel adds to it.
void expect_gradient(std::function<double()> const& loss, Tensor const& variable, Tensor const& gradient,
                     char const* what, double already = 0);

/// Σ weights ∘ values: a loss whose gradient with respect to the tensor is `weights`.
double weighted_sum(Tensor const& weights, Tensor const& tensor);

/// Sequences of these lengths, in order.
Sequences sequences_of(std::vector<std::int32_t> const& lengths);

/// Dropout at `rate` for `rows` rows with distinct samples and positions.
Dropout dropout_of(float rate, std::int64_t rows, std::int32_t first_sample = 11);

}  // namespace heddle
