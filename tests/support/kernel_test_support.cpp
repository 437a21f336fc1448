#include "kernel_test_support.hpp"

#include <cmath>
#include <heddle/core/tensor/doubles.hpp>
#include <map>
#include <span>

namespace heddle {
namespace {

/// One element of a float64 tensor as a tensor.
Tensor element_of(Tensor const& tensor, std::int64_t index) {
  std::int64_t const row_size = tensor.size() / tensor.dim(0);
  Tensor const row = tensor.rows(index / row_size, 1);
  return row.reshaped(Shape{row_size}).rows(index % row_size, 1);
}

/// The first `count` random words of a seed. They are kept, because tests of products make the same factors hundreds of
/// times.
std::span<std::uint32_t const> random_words(std::uint64_t seed, std::size_t count) {
  static std::map<std::uint64_t, std::vector<std::uint32_t>> kept;
  std::vector<std::uint32_t>& words = kept[seed];
  while (words.size() < count) {
    words.push_back(Philox::words(seed, {static_cast<std::uint32_t>(words.size()), 0, 0, 0})[0]);
  }
  return std::span(words).first(count);
}

}  // namespace

std::vector<double> values(Tensor const& tensor) {
  return to_doubles(tensor);
}

Tensor tensor_of(std::vector<double> const& values, DType dtype, Shape const& shape) {
  return from_doubles(values, dtype, shape);
}

Tensor int_tensor(std::vector<std::int32_t> const& values) {
  return from_host<std::int32_t>(values, Shape{static_cast<std::int64_t>(values.size())});
}

Tensor converted(Tensor const& tensor, DType dtype) {
  return tensor.empty() ? Tensor{} : tensor_of(values(tensor), dtype, tensor.shape());
}

Tensor random_tensor(DType dtype, Shape const& shape, std::uint64_t seed, double low, double high) {
  std::span<std::uint32_t const> const words = random_words(seed, static_cast<std::size_t>(shape.size()));
  std::vector<double> numbers;
  numbers.reserve(words.size());
  for (std::uint32_t const word : words) {
    double const number = low + (high - low) * word / 4294967296.0;
    numbers.push_back(static_cast<float>(BFloat16(static_cast<float>(number))));
  }
  return tensor_of(numbers, dtype, shape);
}

void expect_close(Tensor const& actual, Tensor const& expected, DType dtype, char const* what) {
  ASSERT_TRUE(actual.shape() == expected.shape())
      << what << ": " << actual.shape().to_string() << " instead of " << expected.shape().to_string();
  auto const found = values(actual);
  auto const wanted = values(expected);
  std::size_t worst = 0;
  double worst_excess = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    double const allowed = tolerance(dtype) * (1 + std::abs(wanted[i]));
    double const difference = std::abs(found[i] - wanted[i]);
    bool const equal = found[i] == wanted[i] || (std::isfinite(wanted[i]) && difference <= allowed);
    double const excess = equal ? 0 : (std::isfinite(difference) ? difference / allowed : INFINITY);
    if (excess > worst_excess) {
      worst = i;
      worst_excess = excess;
    }
  }
  if (worst_excess > 0) {
    ADD_FAILURE() << what << ": element " << worst << " of " << actual.shape().to_string() << " is " << found[worst]
                  << ", " << worst_excess << " times the tolerance away from " << wanted[worst];
  }
}

void expect_same_bits(Tensor const& actual, Tensor const& expected, char const* what) {
  ASSERT_EQ(actual.dtype(), expected.dtype()) << what;
  ASSERT_TRUE(actual.shape() == expected.shape()) << what;
  auto const found = values(actual);
  auto const wanted = values(expected);
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint64_t>(found[i]), std::bit_cast<std::uint64_t>(wanted[i]))
        << what << ": element " << i << " is " << found[i] << " instead of " << wanted[i];
  }
}

void expect_gradient(std::function<double()> const& loss, Tensor const& variable, Tensor const& gradient,
                     char const* what, double already) {
  constexpr double step = 1e-5;
  constexpr double allowed = 1e-7;
  ASSERT_TRUE(variable.shape() == gradient.shape()) << what;
  auto const start = values(variable);
  auto const found = values(gradient);
  for (std::size_t i = 0; i < start.size(); ++i) {
    Tensor const element = element_of(variable, static_cast<std::int64_t>(i));
    double const above = start[i] + step;
    double const below = start[i] - step;
    copy_from_host(element, &above);
    double const loss_above = loss();
    copy_from_host(element, &below);
    double const loss_below = loss();
    copy_from_host(element, &start[i]);
    double const wanted = (loss_above - loss_below) / (2 * step) + already;
    ASSERT_NEAR(found[i], wanted, allowed * (1 + std::abs(wanted))) << what << ": element " << i;
  }
}

double weighted_sum(Tensor const& weights, Tensor const& tensor) {
  auto const factors = values(weights);
  auto const elements = values(tensor);
  double sum = 0;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    sum += factors[i] * elements[i];
  }
  return sum;
}

Sequences sequences_of(std::vector<std::int32_t> const& lengths) {
  Sequences result;
  std::vector<std::int32_t> begins;
  std::int32_t begin = 0;
  for (std::int32_t const length : lengths) {
    begins.push_back(begin);
    begin += length;
    result.max_length = std::max<std::int64_t>(result.max_length, length);
  }
  result.begin = int_tensor(begins);
  result.length = int_tensor(lengths);
  result.count = static_cast<std::int64_t>(lengths.size());
  return result;
}

Dropout dropout_of(float rate, std::int64_t rows, std::int32_t first_sample) {
  Dropout result;
  result.rate = rate;
  result.key = random_key(1, "test");
  result.step = 3;
  std::vector<std::int32_t> samples;
  std::vector<std::int32_t> positions;
  for (std::int64_t row = 0; row < rows; ++row) {
    samples.push_back(first_sample + static_cast<std::int32_t>(row / 7));
    positions.push_back(static_cast<std::int32_t>(row % 7));
  }
  result.sample = int_tensor(samples);
  result.position = int_tensor(positions);
  return result;
}

}  // namespace heddle
