#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/random.hpp>
#include <heddle/core/operations/trial.hpp>
#include <heddle/core/tensor/doubles.hpp>

namespace heddle {

namespace {

/// Guard elements before and after a tensor: whole cache lines of every dtype, so that tensors stay aligned.
constexpr std::int64_t guards_around = 64;

/// Never a result of the checks' own numbers.
constexpr double guard_integer = -77;

std::vector<unsigned char> bytes_of(Tensor const& memory) {
  std::vector<unsigned char> bytes(static_cast<std::size_t>(memory.bytes()));
  copy_to_host(bytes.data(), memory);
  return bytes;
}

}  // namespace

Tensor TrialTensors::add(DType dtype, Shape const& shape, std::vector<double> const& values, bool read_only) {
  if (static_cast<std::int64_t>(values.size()) != shape.size()) {
    throw Error("a trial gives {} values for a tensor {}", values.size(), shape.to_string());
  }
  bool const matrix = shape.rank() == 2;
  std::int64_t const rows = matrix ? shape[0] : 1;
  std::int64_t const columns = matrix ? shape[1] : shape.size();
  std::int64_t const stride = columns + (matrix ? std::exchange(guards_between_, 0) : 0);
  std::vector<double> all(static_cast<std::size_t>(2 * guards_around + rows * stride),
                          dtype == DType::int32 ? guard_integer : NAN);
  for (std::int64_t row = 0; row < rows; ++row) {
    std::copy_n(values.begin() + row * columns, columns, all.begin() + guards_around + row * stride);
  }
  Buffer buffer;
  buffer.memory = from_doubles(all, dtype, {static_cast<std::int64_t>(all.size())});
  auto* const begin =
      static_cast<unsigned char*>(buffer.memory.raw()) + guards_around * static_cast<std::int64_t>(size_of(dtype));
  buffer.tensor =
      matrix ? Tensor::borrow(begin, dtype, {rows, stride}).columns(0, columns) : Tensor::borrow(begin, dtype, shape);
  buffer.before = bytes_of(buffer.memory);
  buffer.read_only = read_only;
  buffers_.push_back(std::move(buffer));
  return buffers_.back().tensor;
}

Tensor TrialTensors::input(DType dtype, Shape const& shape, double low, double high) {
  std::vector<double> numbers(static_cast<std::size_t>(shape.size()));
  ++seed_;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    auto const words = Philox::words(seed_, {static_cast<std::uint32_t>(i), 0, 0, 0});
    double const number = low + (high - low) * words[0] / 4294967296.0;
    numbers[i] = static_cast<float>(BFloat16(static_cast<float>(number)));
  }
  return add(dtype, shape, numbers, true);
}

Tensor TrialTensors::integers(std::vector<std::int32_t> const& values) {
  return add(DType::int32, {static_cast<std::int64_t>(values.size())}, {values.begin(), values.end()}, true);
}

Sequences TrialTensors::sequences(std::vector<std::int32_t> const& lengths) {
  Sequences result;
  std::vector<std::int32_t> begins;
  std::int32_t begin = 0;
  for (std::int32_t const length : lengths) {
    begins.push_back(begin);
    begin += length;
    result.max_length = std::max<std::int64_t>(result.max_length, length);
  }
  result.begin = integers(begins);
  result.length = integers(lengths);
  result.count = static_cast<std::int64_t>(lengths.size());
  return result;
}

Dropout TrialTensors::dropout(double rate, std::int64_t rows) {
  Dropout result;
  if (rate == 0) {
    return result;
  }
  result.rate = static_cast<float>(rate);
  result.key = random_key(1, "trial");
  result.step = 3;
  std::vector<std::int32_t> samples;
  std::vector<std::int32_t> positions;
  for (std::int32_t row = 0; row < rows; ++row) {
    samples.push_back(11 + row / 7);
    positions.push_back(row % 7);
  }
  result.sample = integers(samples);
  result.position = integers(positions);
  return result;
}

std::string TrialTensors::damage() const {
  for (Buffer const& buffer : buffers_) {
    std::vector<unsigned char> const after = bytes_of(buffer.memory);
    auto const size = static_cast<std::int64_t>(size_of(buffer.memory.dtype()));
    bool const matrix = buffer.tensor.shape().rank() == 2;
    std::int64_t const stride = matrix ? buffer.tensor.row_stride() : buffer.tensor.size();
    std::int64_t const columns = matrix ? buffer.tensor.dim(1) : buffer.tensor.size();
    std::int64_t const rows = matrix ? buffer.tensor.dim(0) : 1;
    auto const next_difference = [&](std::int64_t byte) {
      return std::mismatch(after.begin() + byte, after.end(), buffer.before.begin() + byte).first - after.begin();
    };
    for (std::int64_t byte = next_difference(0); byte < std::ssize(after); byte = next_difference(byte)) {
      std::int64_t const element = byte / size - guards_around;
      bool const inside = element >= 0 && stride > 0 && element < rows * stride && element % stride < columns;
      if (inside && !buffer.read_only) {  // a result: the rest of its row may differ, too
        byte = (element - element % stride + columns + guards_around) * size;
        continue;
      }
      std::string const place = inside || stride == 0
                                    ? fmt::format("element {}", element)
                                    : fmt::format("row {}, column {}", element < 0 ? -1 : element / stride,
                                                  element < 0 ? element : element % stride);
      return fmt::format("it writes to {} of {} tensor {} of {}", place, inside ? "the input" : "memory outside the",
                         buffer.tensor.shape().to_string(), name_of(buffer.tensor.dtype()));
    }
  }
  return "";
}

std::vector<double> dropout_factors(Dropout const& dropout, std::int64_t rows, std::int64_t columns) {
  std::vector<double> factors(static_cast<std::size_t>(rows * columns), 1.0);
  if (!dropout.active()) {
    return factors;
  }
  auto const samples = to_host<std::int32_t>(dropout.sample);
  auto const positions = to_host<std::int32_t>(dropout.position);
  for (std::size_t i = 0; i < factors.size(); ++i) {
    std::size_t const row = i / static_cast<std::size_t>(columns);
    auto const column = static_cast<std::uint32_t>(i % static_cast<std::size_t>(columns)) +
                        static_cast<std::uint32_t>(dropout.first_column);
    auto const words = Philox::words(dropout.key,
                                     {static_cast<std::uint32_t>(samples[row]),
                                      static_cast<std::uint32_t>(positions[row]), column / 8, dropout.step},
                                     Philox::dropout_rounds);
    std::uint32_t const word = words[column % 8 / 2];
    std::uint32_t const half = column % 2 == 0 ? word & 0xffffU : word >> 16;
    factors[i] = half < Dropout::keep_threshold(dropout.rate) ? Dropout::keep_scale(dropout.rate) : 0;
  }
  return factors;
}

}  // namespace heddle
