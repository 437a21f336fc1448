#include "golden_model.hpp"

#include <algorithm>
#include <cmath>
#include <heddle/core/model/built_in_layers.hpp>
#include <heddle/core/tensor/execution.hpp>
#include <heddle/kernels/register.hpp>
#include <limits>

#include "golden_file.hpp"
#include "kernel_test_support.hpp"
#include "test_scores.hpp"

namespace heddle {

namespace {

Registries built_in_registries() {
  Registries registries;
  register_built_in_kernels(registries.kernels);
  add_test_scores(registries.kernels);
  register_built_in_layers(registries.layers);
  return registries;
}

}  // namespace

KernelChoices reference_kernels() {
  return KernelChoices("reference");
}

TestBench::TestBench(ModelConfig config, DType dtype, KernelChoices choices)
    : config_(std::move(config)),
      dtype_(dtype),
      choices_(std::move(choices)),
      registries_(built_in_registries()),
      parameters_(parallel_.mesh),
      execution_(new Execution{{}, scratch_}) {}

TestBench::~TestBench() = default;

Execution& TestBench::execution() {
  return *execution_;
}

void TestBench::allocate() {
  parameters_.allocate(parameter_dtype(dtype_));
  set_golden_values(parameters_);
}

void TestBench::zero_gradients() {
  Tensor const& gradients = parameters_.gradients();
  copy_from_doubles(gradients, std::vector<double>(static_cast<std::size_t>(gradients.size())));
}

double TestBench::update(Optimizer const& optimizer, double learning_rate, std::int64_t step) {
  double squares = 0;
  for (Parameter const& parameter : parameters_.all()) {
    for (double const gradient : to_doubles(parameter.gradient)) {
      squares += parameter.frozen() ? 0 : gradient * gradient;
    }
  }
  double const norm = std::sqrt(squares);
  optimizer.begin({.learning_rate = learning_rate, .gradient_scale = optimizer.gradient_scale(norm), .step = step});
  optimizer.direct(execution());
  for (Optimizer::Matrix const& matrix : optimizer.matrices()) {
    MatrixCall call{matrix.direction, {}, step};
    for (auto const& [key, shape] : matrix.state) {
      Tensor& kept = matrix_state_[matrix.parameter->spec.name + "/" + key];
      kept = kept.empty() ? Tensor::allocate(matrix.direction.dtype(), shape) : kept;
      call.state.push_back(kept);
    }
    matrix.function->apply(execution(), call);
  }
  if (auto const squares_of_whole = optimizer.squares(execution()); !squares_of_whole.empty()) {
    optimizer.set_squares(squares_of_whole);
  }
  optimizer.apply(execution(), {0, parameters_.gradient_size()});
  parameters_.bump_versions();
  return norm;
}

ModelDescription description_of(ModelConfig const& config) {
  LayerRegistry layers;
  register_built_in_layers(layers);
  return describe_model(config, layers);
}

TestModel::TestModel(ModelConfig const& config, VocabularySizes const& vocabulary, DType dtype,
                     KernelChoices const& choices, std::vector<std::string> const& frozen)
    : bench(config, dtype, choices), model(bench.spec("", Side::source), bench.registries().layers, vocabulary) {
  for (Parameter& parameter : bench.parameters().all()) {
    parameter.rule.frozen = std::ranges::any_of(
        frozen, [&](std::string const& pattern) { return matches_pattern(pattern, parameter.spec.name); });
  }
  bench.allocate();
}

double relative_error(std::vector<double> const& actual, std::vector<double> const& expected) {
  if (actual.size() != expected.size()) {
    return std::numeric_limits<double>::infinity();
  }
  double difference = 0;
  double magnitude = std::numeric_limits<double>::min();
  for (std::size_t index = 0; index < actual.size(); ++index) {
    double const here = std::abs(actual[index] - expected[index]);
    difference = std::isnan(here) ? std::numeric_limits<double>::infinity() : std::max(difference, here);
    magnitude = std::max(magnitude, std::abs(expected[index]));
  }
  return difference / magnitude;
}

}  // namespace heddle
