#include <heddle/core/operations/kernel_author.hpp>
#include <numbers>

#include "support/factories.hpp"

namespace heddle {

namespace {

struct Relu {
  KOKKOS_INLINE_FUNCTION static double value(double x) { return x > 0 ? x : 0; }
  KOKKOS_INLINE_FUNCTION static double derivative(double x) { return x > 0 ? 1 : 0; }
};

/// x Φ(x), Φ being the normal distribution function (Hendrycks & Gimpel 2016).
struct Gelu {
  KOKKOS_INLINE_FUNCTION static double cumulative(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }
  KOKKOS_INLINE_FUNCTION static double value(double x) { return x * cumulative(x); }
  KOKKOS_INLINE_FUNCTION static double derivative(double x) {
    double const density = std::exp(-0.5 * x * x) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
    return cumulative(x) + x * density;
  }
};

template <class Function, class Element>
void forward_as(Execution& execution, ActivationCall const& call, Tensor const& output) {
  auto const x = kernels::rows_of<Element>(call.input);
  auto const y = kernels::rows_of<Element>(output);
  kernels::DropoutRule const dropout(call.dropout);
  std::int64_t const columns = call.input.dim(1);
  kernels::for_each(
      execution, "heddle::reference_activation", call.input.dim(0), KOKKOS_LAMBDA(std::int64_t row) {
        for (std::int64_t j = 0; j < columns; ++j) {
          y[row][j] =
              kernels::narrow<Element>(Function::value(kernels::wide<double>(x[row][j])) * dropout.multiplier(row, j));
        }
      });
}

template <class Function, class Element>
void backward_as(Execution& execution, ActivationCall const& call, Tensor const& grad_output,
                 Tensor const& grad_input) {
  auto const x = kernels::rows_of<Element>(call.input);
  auto const grad_y = kernels::rows_of<Element>(grad_output);
  auto const grad_x = kernels::rows_of<Element>(grad_input);
  kernels::DropoutRule const dropout(call.dropout);
  std::int64_t const columns = call.input.dim(1);
  kernels::for_each(
      execution, "heddle::reference_activation", call.input.dim(0), KOKKOS_LAMBDA(std::int64_t row) {
        for (std::int64_t j = 0; j < columns; ++j) {
          double const grad = kernels::wide<double>(grad_y[row][j]) * dropout.multiplier(row, j);
          grad_x[row][j] = kernels::narrow<Element>(grad * Function::derivative(kernels::wide<double>(x[row][j])));
        }
      });
}

/// The definition, element by element in float64.
class ReferenceActivation final : public Activation {
 public:
  bool supports(ActivationProblem const& problem) const override {
    return problem.dtype != DType::int32 && (problem.function == "relu" || problem.function == "gelu");
  }

  void forward(Execution& execution, ActivationCall const& call, Tensor const& output) override {
    output.require(call.input.dtype(), call.input.shape(), "an activation's output");
    kernels::with_floating(call.input.dtype(), [&]<class Element>(Element) {
      call.function == "relu" ? forward_as<Relu, Element>(execution, call, output)
                              : forward_as<Gelu, Element>(execution, call, output);
    });
  }

  void backward(Execution& execution, ActivationCall const& call, Tensor const& grad_output,
                Tensor const& grad_input) override {
    grad_output.require(call.input.dtype(), call.input.shape(), "an activation's grad_output");
    grad_input.require(call.input.dtype(), call.input.shape(), "an activation's grad_input");
    kernels::with_floating(call.input.dtype(), [&]<class Element>(Element) {
      call.function == "relu" ? backward_as<Relu, Element>(execution, call, grad_output, grad_input)
                              : backward_as<Gelu, Element>(execution, call, grad_output, grad_input);
    });
  }
};

}  // namespace

std::shared_ptr<Activation> make_reference_activation() {
  return std::make_shared<ReferenceActivation>();
}

}  // namespace heddle
