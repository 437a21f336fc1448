#include "functions.hpp"
#include "support/factories.hpp"

namespace heddle {

namespace {

using kernels::ActivationRows;

template <class Function, class Element>
void run_forward(Execution& execution, ActivationRows<Element> const& of) {
  kernels::for_each(
      execution, "heddle::reference_activation", of.rows, KOKKOS_LAMBDA(std::int64_t row) {
        for (std::int64_t j = 0; j < of.columns; ++j) {
          double const value = Function::value(kernels::wide<double>(of.input[row][j])) * of.dropout.multiplier(row, j);
          of.output[row][j] =
              kernels::narrow<Element>(of.gate ? value * kernels::wide<double>(of.gate[row][j]) : value);
        }
      });
}

template <class Function, class Element>
void differentiate(Execution& execution, ActivationRows<Element> const& of) {
  kernels::for_each(
      execution, "heddle::reference_activation", of.rows, KOKKOS_LAMBDA(std::int64_t row) {
        for (std::int64_t j = 0; j < of.columns; ++j) {
          double const input = kernels::wide<double>(of.input[row][j]);
          double grad = kernels::wide<double>(of.grad_output[row][j]) * of.dropout.multiplier(row, j);
          if (of.gate) {
            of.grad_gate[row][j] = kernels::narrow<Element>(grad * Function::value(input));
            grad *= kernels::wide<double>(of.gate[row][j]);
          }
          of.grad_input[row][j] = kernels::narrow<Element>(grad * Function::derivative(input));
        }
      });
}

/// The definition, element by element in float64.
struct ReferenceActivation {
  static bool supports(ActivationProblem const& problem) { return is_built_in_activation(problem.function); }

  template <class Element>
  static void forward(Execution& execution, ActivationCall const& call, Tensor const& output) {
    kernels::BuiltInFunctions::with(call.function, [&]<class Function>(Function) {
      run_forward<typename Function::Definition, Element>(execution, {call, output});
    });
  }
  template <class Element>
  static void backward(Execution& execution, ActivationCall const& call, Tensor const& grad_output,
                       ActivationGradients const& gradients) {
    kernels::BuiltInFunctions::with(call.function, [&]<class Function>(Function) {
      differentiate<typename Function::Definition, Element>(execution, {call, grad_output, gradients});
    });
  }
};

}  // namespace

void add_activation_kernels(KernelRegistries& registries) {
  registries.of<Activation>().add("reference", priorities::reference,
                                  std::make_shared<ActivationFrontEnd<ReferenceActivation>>());
}

}  // namespace heddle
