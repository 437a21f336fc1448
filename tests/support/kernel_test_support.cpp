#include "kernel_test_support.hpp"

#include <cmath>
#include <heddle/core/error.hpp>
#include <heddle/kernels/register.hpp>
#include <random>

namespace heddle::test {

namespace {

constexpr double padding_value = -12345;

/// The rows and what lies between them, as one contiguous tensor that shares the memory.
Tensor with_padding(Tensor const& tensor) {
  std::int64_t const rows = tensor.dim(0);
  return Tensor::borrow(tensor.raw(), tensor.dtype(),
                        Shape{rows == 0 ? 0 : (rows - 1) * tensor.row_stride() + tensor.size() / rows});
}

template <class Element>
std::vector<Element> rounded(Values const& values) {
  std::vector<Element> elements(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if constexpr (std::is_same_v<Element, BFloat16>) {
      elements[i] = BFloat16(static_cast<float>(values[i]));
    } else {
      elements[i] = static_cast<Element>(values[i]);
    }
  }
  return elements;
}

template <class Element>
Values widened(Tensor const& contiguous) {
  Values values;
  for (Element const element : to_host<Element>(contiguous)) {
    if constexpr (std::is_same_v<Element, BFloat16>) {
      values.push_back(static_cast<double>(static_cast<float>(element)));
    } else {
      values.push_back(static_cast<double>(element));
    }
  }
  return values;
}

Values contiguous_values(Tensor const& tensor) {
  switch (tensor.dtype()) {
    case DType::float32:
      return widened<float>(tensor);
    case DType::float64:
      return widened<double>(tensor);
    case DType::bfloat16:
      return widened<BFloat16>(tensor);
    case DType::int32:
      return widened<std::int32_t>(tensor);
  }
  throw Error("unknown dtype");
}

}  // namespace

double tolerance(DType dtype) {
  switch (dtype) {
    case DType::float64:
      return 1e-11;
    case DType::bfloat16:
      return 2e-2;
    default:
      return 2e-5;
  }
}

Values random_values(std::int64_t count, std::uint32_t seed, double low, double high) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<double> distribution(low, high);
  Values values(static_cast<std::size_t>(count));
  for (double& value : values) {
    value = distribution(generator);
  }
  return values;
}

Tensor make_tensor(DType dtype, Shape const& shape, Values const& values) {
  switch (dtype) {
    case DType::float32:
      return from_host<float>(rounded<float>(values), shape);
    case DType::float64:
      return from_host<double>(values, shape);
    case DType::bfloat16:
      return from_host<BFloat16>(rounded<BFloat16>(values), shape);
    case DType::int32:
      return from_host<std::int32_t>(rounded<std::int32_t>(values), shape);
  }
  throw Error("unknown dtype");
}

Tensor make_strided(DType dtype, Shape const& shape, std::int64_t padding, Values const& values) {
  std::int64_t const rows = shape[0];
  std::int64_t const columns = shape[1];
  Values padded;
  for (std::int64_t row = 0; row < rows; ++row) {
    padded.insert(padded.end(), values.begin() + row * columns, values.begin() + (row + 1) * columns);
    padded.insert(padded.end(), static_cast<std::size_t>(padding), padding_value);
  }
  return make_tensor(dtype, Shape{rows, columns + padding}, padded).columns(0, columns);
}

Tensor make_integers(std::vector<std::int32_t> const& integers) {
  return from_host<std::int32_t>(integers, Shape{static_cast<std::int64_t>(integers.size())});
}

Values values_of(Tensor const& tensor) {
  if (tensor.contiguous()) {
    return contiguous_values(tensor);
  }
  Values const all = contiguous_values(with_padding(tensor));
  std::int64_t const columns = tensor.size() / tensor.dim(0);
  Values values;
  for (std::int64_t row = 0; row < tensor.dim(0); ++row) {
    auto const begin = all.begin() + row * tensor.row_stride();
    values.insert(values.end(), begin, begin + columns);
  }
  return values;
}

void check_padding(Tensor const& tensor) {
  if (tensor.contiguous()) {
    return;
  }
  double const expected = contiguous_values(make_tensor(tensor.dtype(), Shape{1}, {padding_value}))[0];
  Values const all = contiguous_values(with_padding(tensor));
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (static_cast<std::int64_t>(i) % tensor.row_stride() >= tensor.dim(1)) {
      ASSERT_EQ(all[i], expected) << "element " << i << " between the rows was written to";
    }
  }
}

void expect_near(Values const& actual, Values const& expected, double tolerance, std::string const& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    double const allowed = tolerance * (1 + std::abs(expected[i]));
    ASSERT_TRUE(std::abs(actual[i] - expected[i]) <= allowed)
        << what << ": element " << i << " of " << actual.size() << " is " << actual[i] << ", expected " << expected[i];
  }
}

Values numeric_gradient(std::function<double(Values const&)> const& function, Values values, double step) {
  Values gradient(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    double const value = values[i];
    values[i] = value + step;
    double const above = function(values);
    values[i] = value - step;
    double const below = function(values);
    values[i] = value;
    gradient[i] = (above - below) / (2 * step);
  }
  return gradient;
}

double dot(Values const& left, Values const& right) {
  EXPECT_EQ(left.size(), right.size());
  double sum = 0;
  for (std::size_t i = 0; i < left.size(); ++i) {
    sum += left[i] * right[i];
  }
  return sum;
}

TokenRows make_rows(std::vector<std::int32_t> const& lengths) {
  std::vector<std::int32_t> begin;
  std::vector<std::int32_t> sample;
  std::vector<std::int32_t> position;
  TokenRows rows;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    begin.push_back(static_cast<std::int32_t>(sample.size()));
    for (std::int32_t p = 0; p < lengths[i]; ++p) {
      sample.push_back(static_cast<std::int32_t>(3 * i + 1));
      position.push_back(p);
    }
    rows.sequences.max_length = std::max<std::int64_t>(rows.sequences.max_length, lengths[i]);
  }
  rows.sequences.count = static_cast<std::int64_t>(lengths.size());
  rows.sequences.begin = make_integers(begin);
  rows.sequences.length = make_integers(lengths);
  rows.tokens = static_cast<std::int64_t>(sample.size());
  rows.sample = make_integers(sample);
  rows.position = make_integers(position);
  return rows;
}

Dropout make_dropout(TokenRows const& rows, float rate, std::int32_t first_column) {
  Dropout dropout;
  dropout.rate = rate;
  dropout.key = random_key(7, "test");
  dropout.step = 3;
  dropout.first_column = first_column;
  dropout.sample = rows.sample;
  dropout.position = rows.position;
  return dropout;
}

KernelTest::KernelTest() {
  register_built_in_kernels(registries);
}

}  // namespace heddle::test
