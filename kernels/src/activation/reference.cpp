#include <heddle/core/operations/kernel_author.hpp>

#include "checks.hpp"
#include "definitions.hpp"
#include "support/factories.hpp"

namespace heddle {

namespace {

using kernels::definitions::Gelu;
using kernels::definitions::GeluTanh;
using kernels::definitions::Relu;
using kernels::definitions::Silu;

template <class Function, class Element>
void forward_as(Execution& execution, ActivationCall const& call, Tensor const& output) {
  auto const x = kernels::rows_of<Element>(call.input);
  auto const gate = kernels::rows_of<Element>(call.gate);
  auto const y = kernels::rows_of<Element>(output);
  kernels::DropoutRule const dropout(call.dropout);
  std::int64_t const columns = call.input.dim(1);
  kernels::for_each(
      execution, "heddle::reference_activation", call.input.dim(0), KOKKOS_LAMBDA(std::int64_t row) {
        for (std::int64_t j = 0; j < columns; ++j) {
          double const value = Function::value(kernels::wide<double>(x[row][j])) * dropout.multiplier(row, j);
          y[row][j] = kernels::narrow<Element>(gate ? value * kernels::wide<double>(gate[row][j]) : value);
        }
      });
}

template <class Function, class Element>
void backward_as(Execution& execution, ActivationCall const& call, Tensor const& grad_output,
                 ActivationGradients const& gradients) {
  auto const x = kernels::rows_of<Element>(call.input);
  auto const gate = kernels::rows_of<Element>(call.gate);
  auto const grad_y = kernels::rows_of<Element>(grad_output);
  auto const grad_x = kernels::rows_of<Element>(gradients.input);
  auto const grad_gate = kernels::rows_of<Element>(gradients.gate);
  kernels::DropoutRule const dropout(call.dropout);
  std::int64_t const columns = call.input.dim(1);
  kernels::for_each(
      execution, "heddle::reference_activation", call.input.dim(0), KOKKOS_LAMBDA(std::int64_t row) {
        for (std::int64_t j = 0; j < columns; ++j) {
          double const input = kernels::wide<double>(x[row][j]);
          double grad = kernels::wide<double>(grad_y[row][j]) * dropout.multiplier(row, j);
          if (gate) {
            grad_gate[row][j] = kernels::narrow<Element>(grad * Function::value(input));
            grad *= kernels::wide<double>(gate[row][j]);
          }
          grad_x[row][j] = kernels::narrow<Element>(grad * Function::derivative(input));
        }
      });
}

/// The definition, element by element in float64.
class ReferenceActivation final : public Activation {
 public:
  bool supports(ActivationProblem const& problem) const override {
    return problem.dtype != DType::int32 && kernels::is_built_in_activation(problem.function);
  }

  void forward(Execution& execution, ActivationCall const& call, Tensor const& output) override {
    output.require(call.input.dtype(), call.input.shape(), "an activation's output");
    with_function(call, [&]<class Function, class Element>(Function, Element) {
      forward_as<Function, Element>(execution, call, output);
    });
  }

  void backward(Execution& execution, ActivationCall const& call, Tensor const& grad_output,
                ActivationGradients const& gradients) override {
    kernels::require_activation_gradients(call, grad_output, gradients);
    with_function(call, [&]<class Function, class Element>(Function, Element) {
      backward_as<Function, Element>(execution, call, grad_output, gradients);
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

void add_activation_kernels(KernelRegistries& registries) {
  registries.of<Activation>().add("reference", speeds::reference, std::make_shared<ReferenceActivation>());
}

}  // namespace heddle
