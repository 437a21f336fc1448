#include <heddle/core/operations/kernel_author.hpp>
#include <numbers>

#include "checks.hpp"
#include "support/factories.hpp"

namespace heddle {

namespace {

struct Relu {
  template <class Real>
  KOKKOS_INLINE_FUNCTION static Real value(Real x) {
    return x > Real{0} ? x : Real{0};
  }
  template <class Real>
  KOKKOS_INLINE_FUNCTION static Real derivative(Real x) {
    return x > Real{0} ? Real{1} : Real{0};
  }
};

/// The normal distribution function Φ(x) and exp(-x²/2).
template <class Real>
struct Normal {
  Real cumulative, exponential;
};

/// Abramowitz & Stegun 7.1.26: erf to 1.5e-7, for the upper tail, so that both tails keep their relative precision.
/// Free of branches, so that loops over it vectorise.
KOKKOS_INLINE_FUNCTION Normal<float> normal(float x) {
  float const exponential = fast_exp(-0.5F * x * x);
  float const t = 1.0F / (1.0F + 0.3275911F * std::numbers::sqrt2_v<float> / 2.0F * std::fabs(x));
  float series = 1.061405429F;
  series = series * t - 1.453152027F;
  series = series * t + 1.421413741F;
  series = series * t - 0.284496736F;
  series = series * t + 0.254829592F;
  float const tail = 0.5F * series * t * exponential;
  return {x < 0.0F ? tail : 1.0F - tail, exponential};
}

KOKKOS_INLINE_FUNCTION Normal<double> normal(double x) {
  return {0.5 * std::erfc(-x / std::numbers::sqrt2), std::exp(-0.5 * x * x)};
}

/// Computes x Φ(x) (Hendrycks & Gimpel 2016).
struct Gelu {
  template <class Real>
  KOKKOS_INLINE_FUNCTION static Real value(Real x) {
    return x * normal(x).cumulative;
  }
  template <class Real>
  KOKKOS_INLINE_FUNCTION static Real derivative(Real x) {
    constexpr Real inverse_sqrt_2_pi = std::numbers::inv_sqrtpi_v<Real> / std::numbers::sqrt2_v<Real>;
    Normal<Real> const at = normal(x);
    return at.cumulative + x * inverse_sqrt_2_pi * at.exponential;
  }
};

/// Computes x σ(2u) with u = √(2/π) (x + 0.044715 x³), which is the tanh form of Hendrycks & Gimpel 2016.
struct GeluTanh {
  /// σ(2u), and the derivative of 2u.
  template <class Real>
  struct Gate {
    Real sigmoid, slope;
  };
  template <class Real>
  KOKKOS_INLINE_FUNCTION static Gate<Real> gate(Real x) {
    constexpr Real scale = Real{4} * std::numbers::inv_sqrtpi_v<Real> / std::numbers::sqrt2_v<Real>;
    constexpr auto cubic = static_cast<Real>(0.044715);
    Real const square = x * x;
    return {Real{1} / (Real{1} + fast_exp(-scale * x * (Real{1} + cubic * square))),
            scale * (Real{1} + Real{3} * cubic * square)};
  }
  template <class Real>
  KOKKOS_INLINE_FUNCTION static Real value(Real x) {
    return x * gate(x).sigmoid;
  }
  template <class Real>
  KOKKOS_INLINE_FUNCTION static Real derivative(Real x) {
    Gate<Real> const at = gate(x);
    return at.sigmoid * (Real{1} + x * (Real{1} - at.sigmoid) * at.slope);
  }
};

/// Computes x / (1 + exp(-x)) (Elfwing et al. 2017).
struct Silu {
  template <class Real>
  KOKKOS_INLINE_FUNCTION static Real value(Real x) {
    return x / (Real{1} + fast_exp(-x));
  }
  template <class Real>
  KOKKOS_INLINE_FUNCTION static Real derivative(Real x) {
    Real const sigmoid = Real{1} / (Real{1} + fast_exp(-x));
    return sigmoid * (Real{1} + x * (Real{1} - sigmoid));
  }
};

template <class Function, class Element, class Real = kernels::ArithmeticType<Element>>
void forward_as(Execution& execution, ActivationCall const& call, Tensor const& output) {
  auto const input = kernels::rows_of<Element>(call.input);
  auto const outputs = kernels::rows_of<Element>(output);
  kernels::DropoutRule const dropout(call.dropout);
  std::int64_t const columns = call.input.dim(1);
  kernels::for_each(
      execution, "heddle::activation", call.input.dim(0), KOKKOS_LAMBDA(std::int64_t row) {
        Element const* const x = input[row];
        Element* const y = outputs[row];
        dropout.template for_each_chunk<Real>(
            row, columns, [=](std::int64_t begin, std::int64_t end, auto const& kept) {
              kernels::for_each_of_chunk(end - begin, [=](std::int64_t i) {
                y[begin + i] =
                    kernels::narrow_again<Element>(Function::value(kernels::wide<Real>(x[begin + i])) * kept[i]);
              });
            });
      });
}

template <class Function, class Element, class Real = kernels::ArithmeticType<Element>>
void backward_as(Execution& execution, ActivationCall const& call, Tensor const& grad_output,
                 Tensor const& grad_input) {
  auto const input = kernels::rows_of<Element>(call.input);
  auto const grad_outputs = kernels::rows_of<Element>(grad_output);
  auto const grad_inputs = kernels::rows_of<Element>(grad_input);
  kernels::DropoutRule const dropout(call.dropout);
  std::int64_t const columns = call.input.dim(1);
  kernels::for_each(
      execution, "heddle::activation", call.input.dim(0), KOKKOS_LAMBDA(std::int64_t row) {
        Element const* const x = input[row];
        Element const* const grad_y = grad_outputs[row];
        Element* const grad_x = grad_inputs[row];
        dropout.template for_each_chunk<Real>(
            row, columns, [=](std::int64_t begin, std::int64_t end, auto const& kept) {
              kernels::for_each_of_chunk(end - begin, [=](std::int64_t i) {
                Real const derivative = Function::derivative(kernels::wide<Real>(x[begin + i]));
                grad_x[begin + i] =
                    kernels::narrow_again<Element>(kernels::wide<Real>(grad_y[begin + i]) * kept[i] * derivative);
              });
            });
      });
}

/// relu's gradient if forward's output is available: an element that is zero there was below zero or dropped.
template <class Element, class Real = kernels::ArithmeticType<Element>>
void relu_backward_from_output(Execution& execution, ActivationCall const& call, Tensor const& grad_output,
                               Tensor const& grad_input) {
  auto const output = kernels::rows_of<Element>(call.output);
  auto const grad_outputs = kernels::rows_of<Element>(grad_output);
  auto const grad_inputs = kernels::rows_of<Element>(grad_input);
  auto const scale = static_cast<Real>(kernels::DropoutRule(call.dropout).scale);
  std::int64_t const columns = call.output.dim(1);
  kernels::for_each(
      execution, "heddle::activation", call.output.dim(0), KOKKOS_LAMBDA(std::int64_t row) {
        Element const* const y = output[row];
        Element const* const grad_y = grad_outputs[row];
        Element* const grad_x = grad_inputs[row];
        for (std::int64_t j = 0; j < columns; ++j) {
          Real const factor = kernels::wide<Real>(y[j]) > Real{0} ? scale : Real{0};
          grad_x[j] = kernels::narrow_again<Element>(kernels::wide<Real>(grad_y[j]) * factor);
        }
      });
}

template <class Function, class Element, class Real = kernels::ArithmeticType<Element>>
void gated_forward_as(Execution& execution, ActivationCall const& call, Tensor const& output) {
  auto const input = kernels::rows_of<Element>(call.input);
  auto const gates = kernels::rows_of<Element>(call.gate);
  auto const outputs = kernels::rows_of<Element>(output);
  kernels::DropoutRule const dropout(call.dropout);
  std::int64_t const columns = call.input.dim(1);
  kernels::for_each(
      execution, "heddle::activation", call.input.dim(0), KOKKOS_LAMBDA(std::int64_t row) {
        Element const* const x = input[row];
        Element const* const gate = gates[row];
        Element* const y = outputs[row];
        dropout.template for_each_chunk<Real>(
            row, columns, [=](std::int64_t begin, std::int64_t end, auto const& kept) {
              kernels::for_each_of_chunk(end - begin, [=](std::int64_t i) {
                Real const value = Function::value(kernels::wide<Real>(x[begin + i])) * kept[i];
                y[begin + i] = kernels::narrow_again<Element>(value * kernels::wide<Real>(gate[begin + i]));
              });
            });
      });
}

template <class Function, class Element, class Real = kernels::ArithmeticType<Element>>
void gated_backward_as(Execution& execution, ActivationCall const& call, Tensor const& grad_output,
                       ActivationGradients const& gradients) {
  auto const input = kernels::rows_of<Element>(call.input);
  auto const gates = kernels::rows_of<Element>(call.gate);
  auto const grad_outputs = kernels::rows_of<Element>(grad_output);
  auto const grad_inputs = kernels::rows_of<Element>(gradients.input);
  auto const grad_gates = kernels::rows_of<Element>(gradients.gate);
  kernels::DropoutRule const dropout(call.dropout);
  std::int64_t const columns = call.input.dim(1);
  kernels::for_each(
      execution, "heddle::activation", call.input.dim(0), KOKKOS_LAMBDA(std::int64_t row) {
        Element const* const x = input[row];
        Element const* const gate = gates[row];
        Element const* const grad_y = grad_outputs[row];
        Element* const grad_x = grad_inputs[row];
        Element* const grad_gate = grad_gates[row];
        dropout.template for_each_chunk<Real>(
            row, columns, [=](std::int64_t begin, std::int64_t end, auto const& kept) {
              kernels::for_each_of_chunk(end - begin, [=](std::int64_t i) {
                auto const value = kernels::wide<Real>(x[begin + i]);
                Real const grad = kernels::wide<Real>(grad_y[begin + i]) * kept[i];
                Real const of_input = grad * kernels::wide<Real>(gate[begin + i]) * Function::derivative(value);
                grad_gate[begin + i] = kernels::narrow_again<Element>(grad * Function::value(value));
                grad_x[begin + i] = kernels::narrow_again<Element>(of_input);
              });
            });
      });
}

template <class Function, class Element>
void run_forward(Execution& execution, ActivationCall const& call, Tensor const& output) {
  call.gate.empty() ? forward_as<Function, Element>(execution, call, output)
                    : gated_forward_as<Function, Element>(execution, call, output);
}

template <class Function, class Element>
void run_backward(Execution& execution, ActivationCall const& call, Tensor const& grad_output,
                  ActivationGradients const& gradients) {
  if (!call.gate.empty()) {
    gated_backward_as<Function, Element>(execution, call, grad_output, gradients);
  } else if (std::is_same_v<Function, Relu> && !call.output.empty()) {
    relu_backward_from_output<Element>(execution, call, grad_output, gradients.input);
  } else {
    backward_as<Function, Element>(execution, call, grad_output, gradients.input);
  }
}

class KokkosActivation final : public Activation {
 public:
  bool supports(ActivationProblem const& problem) const override {
    return problem.dtype != DType::int32 && kernels::is_built_in_activation(problem.function);
  }

  void forward(Execution& execution, ActivationCall const& call, Tensor const& output) override {
    output.require(call.input.dtype(), call.input.shape(), "an activation's output");
    with_function(call, [&]<class Function, class Element>(Function, Element) {
      run_forward<Function, Element>(execution, call, output);
    });
  }

  void backward(Execution& execution, ActivationCall const& call, Tensor const& grad_output,
                ActivationGradients const& gradients) override {
    kernels::require_activation_gradients(call, grad_output, gradients);
    with_function(call, [&]<class Function, class Element>(Function, Element) {
      run_backward<Function, Element>(execution, call, grad_output, gradients);
    });
  }

 private:
  /// Calls `work(Function{}, Element{})` with the call's function and element type.
  template <class Work>
  static void with_function(ActivationCall const& call, Work const& work) {
    kernels::with_floating(call.input.dtype(), [&]<class Element>(Element element) {
      if (call.function == "relu") {
        work(Relu{}, element);
      } else if (call.function == "gelu") {
        work(Gelu{}, element);
      } else if (call.function == "gelu_tanh") {
        work(GeluTanh{}, element);
      } else {
        work(Silu{}, element);
      }
    });
  }
};

}  // namespace

void add_portable_activation_kernels(KernelRegistries& registries) {
  registries.of<Activation>().add("kokkos", speeds::portable, std::make_shared<KokkosActivation>());
}

}  // namespace heddle
