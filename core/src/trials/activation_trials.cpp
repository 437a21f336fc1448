#include <fmt/format.h>

#include <functional>
#include <heddle/core/base/activation_functions.hpp>
#include <heddle/core/operations/activation.hpp>
#include <heddle/core/tensor/doubles.hpp>
#include <heddle/core/trials/trials.hpp>

namespace heddle {

namespace {

/// The memory that a call's result may share with another of its tensors (activation.hpp).
enum class Shared : std::uint8_t { nothing, input, gate };

struct Variant {
  std::int64_t rows, columns;
  bool gated;
  double dropout;
  std::int64_t strided;
  Shared shared = Shared::nothing;  ///< by the output; then the input's gradient shares the output's gradient
  bool keeps_output = false;        ///< backward is given forward's output
  std::int32_t first_column = 13;   ///< of dropout: inside a group of 8 random numbers, or at its start

  std::string name(std::string const& function) const {
    return fmt::format("{}, {} x {}{}{}{}{}", function, rows, columns, gated ? ", gated" : "",
                       dropout > 0 ? fmt::format(", dropout {}", dropout) : "", strided > 0 ? ", strided" : "",
                       shared == Shared::nothing ? ""
                       : shared == Shared::input ? ", in place"
                                                 : ", in the gate's place") +
           (keeps_output ? ", output kept" : "") + (first_column % 8 == 0 ? ", whole groups" : "");
  }
};

/// More columns than one batch of random counters decides, shapes that nothing divides.
constexpr std::array variants{Variant{11, 301, false, 0, 5},
                              Variant{11, 301, false, 0.3, 5},
                              Variant{7, 67, true, 0, 3},
                              Variant{11, 301, true, 0.3, 3},
                              Variant{3, 1024, false, 0, 0},
                              Variant{1, 1, false, 0, 0},
                              Variant{5, 64, false, 0.4, 0},
                              Variant{0, 8, false, 0, 0},
                              Variant{5, 64, true, 0, 0},
                              Variant{5, 131, false, 0, 0, Shared::input},
                              Variant{9, 67, false, 0.3, 0, Shared::input},
                              Variant{5, 131, true, 0, 0, Shared::input},
                              Variant{5, 131, true, 0, 0, Shared::gate},
                              Variant{5, 131, false, 0.3, 0, Shared::nothing, true},
                              Variant{11, 301, false, 0.3, 5, Shared::nothing, false, 16},
                              Variant{5, 675, true, 0.3, 3, Shared::nothing, false, 16},
                              Variant{9, 67, false, 0.3, 0, Shared::input, false, 16},
                              Variant{5, 131, false, 0.3, 0, Shared::nothing, true, 16}};

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
  call.dropout.first_column = variant.first_column;
  if (variant.gated) {
    call.gate = tensors.strided(variant.strided).input(dtype, shape);
  }
  Tensor const output = tensors.strided(variant.strided).output(dtype, shape);
  bool const in_place = variant.shared != Shared::nothing;
  Tensor const upstream = in_place ? tensors.updated(dtype, shape, to_doubles(tensors.input(dtype, shape)))
                                   : tensors.strided(variant.strided).input(dtype, shape);
  ActivationGradients const gradients{in_place ? upstream : tensors.strided(variant.strided).output(dtype, shape),
                                      variant.gated ? tensors.strided(variant.strided).output(dtype, shape) : Tensor()};
  Trial<Activation> trial{.problem = call.problem()};
  trial.forward = [=, shared = variant.shared](Activation& kernel, Execution& execution) {
    ActivationCall called = call;
    if (shared != Shared::nothing) {
      Tensor& replaced = shared == Shared::input ? called.input : called.gate;
      copy_from_doubles(output, to_doubles(replaced));
      replaced = output;
    }
    kernel.forward(execution, called, output);
  };
  trial.backward = [=, keeps = variant.keeps_output](Activation& kernel, Execution& execution) {
    ActivationCall called = call;
    called.output = keeps ? output : Tensor();
    kernel.backward(execution, called, upstream, gradients);
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
    registries.of<Activation>().add_trial(variant.name(function),
                                          std::bind_front(make_trial, function, definition, variant));
  }
}

void add_activation_trials(KernelRegistries& registries) {
  for (ActivationFunction const& function : activation_functions) {
    add_activation_trials(registries, std::string(function.name));
  }
}

}  // namespace heddle
