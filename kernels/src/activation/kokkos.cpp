#include "functions.hpp"
#include "support/factories.hpp"

namespace heddle {

namespace {

template <bool gated, class Function, class Element, class Real = kernels::ArithmeticType<Element>>
void forward_as(Execution& execution, ActivationCall const& call, Tensor const& output) {
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
void backward_as(Execution& execution, ActivationCall const& call, Tensor const& grad_output,
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

struct KokkosActivation {
  static bool supports(ActivationProblem const& problem) { return is_built_in_activation(problem.function); }

  template <class Element>
  static void forward(Execution& execution, ActivationCall const& call, Tensor const& output) {
    kernels::BuiltInFunctions::with(call.function, [&]<class Function>(Function) {
      call.gate.empty() ? forward_as<false, Function, Element>(execution, call, output)
                        : forward_as<true, Function, Element>(execution, call, output);
    });
  }
  template <class Element>
  static void backward(Execution& execution, ActivationCall const& call, Tensor const& grad_output,
                       ActivationGradients const& gradients) {
    kernels::BuiltInFunctions::with(call.function, [&]<class Function>(Function) {
      if (!call.gate.empty()) {
        backward_as<true, Function, Element>(execution, call, grad_output, gradients);
      } else if (std::is_same_v<Function, kernels::Relu> && !call.output.empty()) {
        relu_backward_from_output<Element>(execution, call, grad_output, gradients.input);
      } else {
        backward_as<false, Function, Element>(execution, call, grad_output, gradients);
      }
    });
  }
};

}  // namespace

void add_portable_activation_kernels(KernelRegistries& registries) {
  registries.of<Activation>().add("kokkos", speeds::portable, std::make_shared<ActivationFrontEnd<KokkosActivation>>());
}

}  // namespace heddle
