#pragma once

#include <heddle/core/operations/registry.hpp>
#include <heddle/kernels/register.hpp>
#include <string>
#include <vector>

#include "kernel_test_support.hpp"

namespace heddle {

using Values = std::vector<double>;

/// The built-in implementations, to be tested one after another, and their surroundings.
class BuiltInKernelsTest : public KernelTest {
 protected:
  BuiltInKernelsTest() { register_built_in_kernels(registries_); }

  /// The names of the implementations that support the problem.
  template <class Interface>
  std::vector<std::string> names_for(typename Interface::Problem const& problem) const {
    std::vector<std::string> names;
    for (Implementation const& entry : registries_.of<Interface>().supporting(AnyProblem::of<Interface>(problem))) {
      names.push_back(entry.name);
    }
    return names;
  }

  /// The implementations that support the problem.
  template <class Interface>
  auto supporting(typename Interface::Problem const& problem) const {
    auto entries = registries_.of<Interface>().entries();
    std::erase_if(entries, [&](auto const& entry) { return !entry.kernel->supports(problem); });
    return entries;
  }

  KernelRegistries registries_;
};

inline Values random_values(std::int64_t count, std::uint64_t seed, double low = -1, double high = 1) {
  return values(random_tensor(DType::float64, Shape{1, count}, seed, low, high));
}

/// A matrix with `padding` elements, all 77, between its rows.
inline Tensor strided_tensor(Values const& elements, DType dtype, Shape const& shape, std::int64_t padding) {
  auto const columns = static_cast<std::size_t>(shape[1]);
  Values padded;
  for (auto row = elements.begin(); row != elements.end(); row += shape[1]) {
    padded.insert(padded.end(), row, row + shape[1]);
    padded.insert(padded.end(), static_cast<std::size_t>(padding), 77.0);
    if (columns == 0) {
      break;
    }
  }
  return tensor_of(padded, dtype, Shape{shape[0], shape[1] + padding}).columns(0, shape[1]);
}

/// Fails where the elements between the rows of a strided_tensor have been written to.
inline void expect_padding_untouched(Tensor const& tensor, std::string const& what) {
  if (tensor.contiguous()) {
    return;
  }
  std::int64_t const size = (tensor.dim(0) - 1) * tensor.row_stride() + tensor.dim(1);
  Values const all = values(Tensor::borrow(tensor.raw(), tensor.dtype(), Shape{size}));
  for (std::int64_t i = 0; i < size; ++i) {
    if (i % tensor.row_stride() >= tensor.dim(1)) {
      ASSERT_EQ(all[static_cast<std::size_t>(i)], 77.0) << what << ": element " << i << " between rows was written to";
    }
  }
}

/// As expect_close, for expected values on the host.
inline void expect_values(Tensor const& actual, Values const& expected, DType dtype, std::string const& what) {
  ASSERT_EQ(actual.size(), static_cast<std::int64_t>(expected.size())) << what;
  expect_close(actual, tensor_of(expected, DType::float64, actual.shape()), dtype, what.c_str());
}

/// Packed sequences of these lengths: row r of sequence i has sample 3 i + 1 and position r.
inline TokenRows token_rows(std::vector<std::int32_t> const& lengths) {
  std::vector<std::int32_t> samples;
  std::vector<std::int32_t> positions;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    for (std::int32_t position = 0; position < lengths[i]; ++position) {
      samples.push_back(static_cast<std::int32_t>(3 * i + 1));
      positions.push_back(position);
    }
  }
  TokenRows rows;
  rows.sequences = sequences_of(lengths);
  rows.sample = int_tensor(samples);
  rows.position = int_tensor(positions);
  rows.tokens = static_cast<std::int64_t>(samples.size());
  return rows;
}

}  // namespace heddle
