#include <fmt/format.h>

#include <heddle/core/checks/trials.hpp>
#include <heddle/core/operations/activation.hpp>
#include <heddle/core/tensor/doubles.hpp>

#include "dropout_factors.hpp"

namespace heddle {

namespace {

struct Variant {
  std::int64_t rows, columns;
  bool gated;
  double dropout;
  std::int64_t strided;

  std::string name(std::string const& function) const {
    return fmt::format("{}, {} x {}{}{}{}", function, rows, columns, gated ? ", gated" : "",
                       dropout > 0 ? fmt::format(", dropout {}", dropout) : "", strided > 0 ? ", strided" : "");
  }
};

/// More columns than one batch of random counters decides, shapes that nothing divides.
constexpr std::array variants{Variant{11, 301, false, 0, 5}, Variant{11, 301, false, 0.3, 5},
                              Variant{7, 67, true, 0, 3},    Variant{11, 301, true, 0.3, 3},
                              Variant{3, 1024, false, 0, 0}, Variant{1, 1, false, 0, 0},
                              Variant{5, 64, false, 0.4, 0}, Variant{0, 8, false, 0, 0}};

/// The outputs by the definition.
std::vector<double> expected(std::function<double(double)> const& definition, ActivationCall const& call) {
  std::vector<double> values = to_doubles(call.input);
  std::vector<double> const factors = dropout_factors(call.dropout, call.input.dim(0), call.input.dim(1));
  std::vector<double> const gates = to_doubles(call.gate);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = definition(values[i]) * factors[i] * (gates.empty() ? 1 : gates[i]);
  }
  return values;
}

Trial<Activation> make_trial(std::string const& function, std::function<double(double)> const& definition,
                             Variant const& variant, TrialTensors& tensors, DType dtype) {
  Shape const shape{variant.rows, variant.columns};
  ActivationCall call{.function = function, .input = tensors.strided(variant.strided).input(dtype, shape, -6, 6)};
  call.dropout = tensors.dropout(variant.dropout, variant.rows);
  call.dropout.first_column = 13;
  if (variant.gated) {
    call.gate = tensors.strided(variant.strided).input(dtype, shape);
  }
  Tensor const output = tensors.strided(variant.strided).output(dtype, shape);
  Tensor const upstream = tensors.strided(variant.strided).input(dtype, shape);
  ActivationGradients const gradients{tensors.strided(variant.strided).output(dtype, shape),
                                      variant.gated ? tensors.strided(variant.strided).output(dtype, shape) : Tensor()};
  Trial<Activation> trial{.problem = call.problem()};
  trial.forward = [=](Activation& kernel, Execution& execution) { kernel.forward(execution, call, output); };
  trial.backward = [=](Activation& kernel, Execution& execution) {
    kernel.backward(execution, call, upstream, gradients);
  };
  trial.outputs = {{"output", output, upstream, definition ? expected(definition, call) : std::vector<double>()}};
  trial.gradients = {{"input", call.input, gradients.input}};
  if (variant.gated) {
    trial.gradients.push_back({"gate", call.gate, gradients.gate});
  }
  return trial;
}

}  // namespace

void add_activation_trials(KernelRegistries& registries, std::string const& function,
                           std::function<double(double)> const& definition) {
  for (Variant const& variant : variants) {
    registries.of<Activation>().add_trial(variant.name(function), [=](TrialTensors& tensors, DType dtype) {
      return make_trial(function, definition, variant, tensors, dtype);
    });
  }
}

}  // namespace heddle
