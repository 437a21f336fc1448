// A plug-in: the activation function x · sigmoid(x) (Elfwing et al. 2017, Ramachandran et al. 2017).

#include <cmath>
#include <heddle/core/operations/activation.hpp>
#include <heddle/core/operations/kernel_author.hpp>
#include <heddle/core/plugins/entry.hpp>
#include <heddle/core/trials/trials.hpp>

namespace swish_plugin {

using heddle::ActivationCall;
using heddle::Execution;
using heddle::Tensor;
namespace kernels = heddle::kernels;

// Elements are read with wide() as the type of the computation and written with narrow(), so that one formula works
// for float32, float64 and bfloat16.

struct Swish {
  static bool supports(heddle::ActivationProblem const& problem) {
    return problem.function == "swish" && !problem.gated;
  }

  template <class Element, class Real = kernels::ArithmeticType<Element>>
  static void forward(Execution& execution, ActivationCall const& call, Tensor const& output) {
    auto const x = kernels::rows_of<Element>(call.input);
    auto const y = kernels::rows_of<Element>(output);
    kernels::DropoutRule const dropout(call.dropout);
    std::int64_t const columns = call.input.dim(1);
    kernels::for_each(
        execution, "swish", call.input.size(), KOKKOS_LAMBDA(std::int64_t index) {
          std::int64_t const row = index / columns;
          std::int64_t const column = index % columns;
          auto const value = kernels::wide<Real>(x[row][column]);
          auto const kept = static_cast<Real>(dropout.multiplier(row, column));
          y[row][column] = kernels::narrow<Element>(value / (1 + std::exp(-value)) * kept);
        });
  }

  template <class Element, class Real = kernels::ArithmeticType<Element>>
  static void backward(Execution& execution, ActivationCall const& call, Tensor const& grad_output,
                       heddle::ActivationGradients const& gradients) {
    auto const x = kernels::rows_of<Element>(call.input);
    auto const grad_y = kernels::rows_of<Element>(grad_output);
    auto const grad_x = kernels::rows_of<Element>(gradients.input);
    kernels::DropoutRule const dropout(call.dropout);
    std::int64_t const columns = call.input.dim(1);
    kernels::for_each(
        execution, "swish backward", call.input.size(), KOKKOS_LAMBDA(std::int64_t index) {
          std::int64_t const row = index / columns;
          std::int64_t const column = index % columns;
          auto const value = kernels::wide<Real>(x[row][column]);
          Real const sigmoid = 1 / (1 + std::exp(-value));
          Real const derivative = sigmoid * (1 + value * (1 - sigmoid));
          auto const kept = static_cast<Real>(dropout.multiplier(row, column));
          grad_x[row][column] = kernels::narrow<Element>(kernels::wide<Real>(grad_y[row][column]) * derivative * kept);
        });
  }
};

void register_all(heddle::Registries& registries) {
  // The front end checks the tensors and calls the templates above with their element type. A speed as kokkos'.
  registries.kernels.of<heddle::Activation>().add("swish", 10, std::make_shared<heddle::ActivationFrontEnd<Swish>>());
  heddle::add_activation_trials(registries.kernels, "swish", [](double x) { return x / (1 + std::exp(-x)); });
}

}  // namespace swish_plugin

HEDDLE_PLUGIN(swish_plugin::register_all)
