#include "functions.hpp"
#include "support/factories.hpp"

namespace heddle {

namespace {

using kernels::ActivationRows;

template <bool gated, class Function, class Element, class Real = kernels::ArithmeticType<Element>>
void run_forward(Execution& execution, ActivationRows<Element> const& of) {
  kernels::for_each(
      execution, "heddle::activation", of.rows, KOKKOS_LAMBDA(std::int64_t row) {
        Element const* const x = of.input[row];
        Element const* const gate = of.gate[row];
        Element* const y = of.output[row];
        of.dropout.template for_each_chunk<Real>(
            row, of.columns, [=](std::int64_t begin, std::int64_t end, auto const& kept) {
              kernels::for_each_of_chunk(end - begin, [=](std::int64_t i) {
                Real value = Function::value(kernels::wide<Real>(x[begin + i])) * kept[i];
                if constexpr (gated) {
                  value *= kernels::wide<Real>(gate[begin + i]);
                }
                y[begin + i] = kernels::narrow_again<Element>(value);
              });
            });
      });
}

template <bool gated, class Function, class Element, class Real = kernels::ArithmeticType<Element>>
void differentiate(Execution& execution, ActivationRows<Element> const& of) {
  kernels::for_each(
      execution, "heddle::activation", of.rows, KOKKOS_LAMBDA(std::int64_t row) {
        Element const* const x = of.input[row];
        Element const* const gate = of.gate[row];
        Element const* const grad_y = of.grad_output[row];
        Element* const grad_x = of.grad_input[row];
        Element* const grad_gate = of.grad_gate[row];
        of.dropout.template for_each_chunk<Real>(
            row, of.columns, [=](std::int64_t begin, std::int64_t end, auto const& kept) {
              kernels::for_each_of_chunk(end - begin, [=](std::int64_t i) {
                auto const value = kernels::wide<Real>(x[begin + i]);
                Real const grad = kernels::wide<Real>(grad_y[begin + i]) * kept[i];
                Real of_input = grad;
                if constexpr (gated) {
                  of_input *= kernels::wide<Real>(gate[begin + i]);
                  grad_gate[begin + i] = kernels::narrow_again<Element>(grad * Function::value(value));
                }
                grad_x[begin + i] = kernels::narrow_again<Element>(of_input * Function::derivative(value));
              });
            });
      });
}

/// relu's gradient if forward's output is available: an element that is zero there was below zero or dropped.
template <class Element, class Real = kernels::ArithmeticType<Element>>
void differentiate_relu(Execution& execution, ActivationRows<Element> const& of) {
  auto const scale = static_cast<Real>(of.dropout.scale);
  kernels::for_each(
      execution, "heddle::activation", of.rows, KOKKOS_LAMBDA(std::int64_t row) {
        Element const* const y = of.output[row];
        Element const* const grad_y = of.grad_output[row];
        Element* const grad_x = of.grad_input[row];
        std::int64_t const columns = of.columns;
        for (std::int64_t j = 0; j < columns; ++j) {
          Real const factor = kernels::wide<Real>(y[j]) > Real{0} ? scale : Real{0};
          grad_x[j] = kernels::narrow_again<Element>(kernels::wide<Real>(grad_y[j]) * factor);
        }
      });
}

struct KokkosActivation {
  static bool supports(ActivationProblem const& problem) { return is_built_in_activation(problem.function); }

  template <class Element>
  static void forward(Execution& execution, ActivationCall const& call, Tensor const& output) {
    ActivationRows<Element> const rows(call, output);
    kernels::BuiltInFunctions::with(call.function, [&]<class Function>(Function) {
      rows.gate ? run_forward<true, Function>(execution, rows) : run_forward<false, Function>(execution, rows);
    });
  }
  template <class Element>
  static void backward(Execution& execution, ActivationCall const& call, Tensor const& grad_output,
                       ActivationGradients const& gradients) {
    ActivationRows<Element> const rows(call, grad_output, gradients);
    kernels::BuiltInFunctions::with(call.function, [&]<class Function>(Function) {
      if (rows.gate) {
        differentiate<true, Function>(execution, rows);
      } else if (std::is_same_v<Function, kernels::Relu> && rows.output) {
        differentiate_relu(execution, rows);
      } else {
        differentiate<false, Function>(execution, rows);
      }
    });
  }
};

}  // namespace

void add_portable_activation_kernels(KernelRegistries& registries) {
  using FrontEnd = ActivationFrontEnd<KokkosActivation, CompiledTypes>;
  registries.of<Activation>().add_part("kokkos", priorities::portable, std::make_shared<FrontEnd>());
}

}  // namespace heddle
