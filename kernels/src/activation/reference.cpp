#include "functions.hpp"
#include "support/factories.hpp"

namespace heddle {

namespace {

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
struct ReferenceActivation {
  static bool supports(ActivationProblem const& problem) { return is_built_in_activation(problem.function); }

  template <class Element>
  static void forward(Execution& execution, ActivationCall const& call, Tensor const& output) {
    kernels::BuiltInFunctions::with(call.function, [&]<class Function>(Function) {
      forward_as<typename Function::Definition, Element>(execution, call, output);
    });
  }
  template <class Element>
  static void backward(Execution& execution, ActivationCall const& call, Tensor const& grad_output,
                       ActivationGradients const& gradients) {
    kernels::BuiltInFunctions::with(call.function, [&]<class Function>(Function) {
      backward_as<typename Function::Definition, Element>(execution, call, grad_output, gradients);
    });
  }
};

}  // namespace

void add_activation_kernels(KernelRegistries& registries) {
  registries.of<Activation>().add("reference", speeds::reference,
                                  std::make_shared<ActivationFrontEnd<ReferenceActivation>>());
}

}  // namespace heddle
