#include "swish.hpp"

#include <Kokkos_Core.hpp>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/core/tensor/execution.hpp>

#include "elements.hpp"

namespace swish {
namespace {

using heddle::ActivationCall;
using heddle::Dropout;
using heddle::Execution;
using heddle::Philox;
using heddle::Tensor;

/// The rows of a matrix, which may be strided.
template <class Element>
struct Rows {
  using Real = ArithmeticType<Element>;
  Element* data;
  std::int64_t stride;

  explicit Rows(Tensor const& tensor) : data(tensor.data<Element>()), stride(tensor.row_stride()) {}
  KOKKOS_INLINE_FUNCTION Real read(std::int64_t row, std::int64_t column) const {
    return static_cast<Real>(data[row * stride + column]);
  }
  KOKKOS_INLINE_FUNCTION void write(std::int64_t row, std::int64_t column, Real value) const {
    data[row * stride + column] = static_cast<Element>(value);
  }
};

/// Dropout as a work item sees it; which elements are kept is a rule that random.hpp gives.
struct Mask {
  bool active;
  std::uint32_t threshold = 0;
  double scale = 1;
  std::uint64_t key = 0;
  std::uint32_t step = 0;
  std::int64_t first_column = 0;
  std::int32_t const* sample = nullptr;
  std::int32_t const* position = nullptr;

  explicit Mask(Dropout const& dropout) : active(dropout.active()) {
    if (active) {
      threshold = Dropout::keep_threshold(dropout.rate);
      scale = Dropout::keep_scale(dropout.rate);
      key = dropout.key;
      step = dropout.step;
      first_column = dropout.first_column;
      sample = dropout.sample.data<std::int32_t>();
      position = dropout.position.data<std::int32_t>();
    }
  }

  /// What an element is multiplied by.
  KOKKOS_INLINE_FUNCTION double operator()(std::int64_t row, std::int64_t local_column) const {
    if (!active) {
      return 1;
    }
    std::int64_t const column = first_column + local_column;
    auto const words =
        Philox::words(key,
                      {static_cast<std::uint32_t>(sample[row]), static_cast<std::uint32_t>(position[row]),
                       static_cast<std::uint32_t>(column / 8), step},
                      Philox::dropout_rounds);
    auto const lane = static_cast<std::size_t>(column % 8);
    std::uint32_t const half = lane % 2 == 0 ? words[lane / 2] & 0xffffU : words[lane / 2] >> 16;
    return half < threshold ? scale : 0;
  }
};

/// Calls `body(row, column)` for every element of a [tokens, columns] matrix.
template <class Body>
void for_each_element(Execution& execution, Tensor const& matrix, Body const& body) {
  using Policy = Kokkos::RangePolicy<Kokkos::DefaultExecutionSpace, Kokkos::IndexType<std::int64_t>>;
  std::int64_t const columns = matrix.dim(1);
  Kokkos::parallel_for(
      "swish", Policy(execution.space, 0, matrix.size()),
      KOKKOS_LAMBDA(std::int64_t index) { body(index / columns, index % columns); });
}

template <class Element>
void forward_as(Execution& execution, ActivationCall const& call, Tensor const& output) {
  using Real = ArithmeticType<Element>;
  Rows<Element> const x(call.input);
  Rows<Element> const y(output);
  Mask const mask(call.dropout);
  for_each_element(
      execution, call.input, KOKKOS_LAMBDA(std::int64_t row, std::int64_t column) {
        Real const value = x.read(row, column);
        y.write(row, column, value / (1 + std::exp(-value)) * static_cast<Real>(mask(row, column)));
      });
}

template <class Element>
void backward_as(Execution& execution, ActivationCall const& call, Tensor const& grad_output,
                 Tensor const& grad_input) {
  using Real = ArithmeticType<Element>;
  Rows<Element> const x(call.input);
  Rows<Element> const grad_y(grad_output);
  Rows<Element> const grad_x(grad_input);
  Mask const mask(call.dropout);
  for_each_element(
      execution, call.input, KOKKOS_LAMBDA(std::int64_t row, std::int64_t column) {
        Real const value = x.read(row, column);
        Real const sigmoid = 1 / (1 + std::exp(-value));
        Real const derivative = sigmoid * (1 + value * (1 - sigmoid));
        grad_x.write(row, column, grad_y.read(row, column) * derivative * static_cast<Real>(mask(row, column)));
      });
}

class Swish final : public heddle::Activation {
 public:
  bool supports(heddle::ActivationProblem const& problem) const override {
    return problem.function == "swish" && problem.dtype != heddle::DType::int32;
  }

  void forward(Execution& execution, ActivationCall const& call, Tensor const& output) override {
    output.require(call.input.dtype(), call.input.shape(), "swish's output");
    with_element(call.input.dtype(), [&]<class Element>(Element) { forward_as<Element>(execution, call, output); });
  }

  void backward(Execution& execution, ActivationCall const& call, Tensor const& grad_output,
                Tensor const& grad_input) override {
    grad_output.require(call.input.dtype(), call.input.shape(), "swish's grad_output");
    grad_input.require(call.input.dtype(), call.input.shape(), "swish's grad_input");
    with_element(call.input.dtype(),
                 [&]<class Element>(Element) { backward_as<Element>(execution, call, grad_output, grad_input); });
  }
};

}  // namespace

std::shared_ptr<heddle::Activation> make_swish() {
  return std::make_shared<Swish>();
}

}  // namespace swish
