#pragma once

#include <heddle/core/layers/registries.hpp>
#include <heddle/core/model/model.hpp>
#include <heddle/core/tensor/doubles.hpp>
#include <heddle/core/training/optimizer.hpp>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace heddle {

/// Every operation by its implementation "reference".
KernelChoices reference_kernels();

/// All that layers are built from and run with, on one rank, with every built-in kernel and layer and the scores of
/// test_scores.hpp.
class TestBench {
 public:
  TestBench(ModelConfig config, DType dtype, KernelChoices choices = reference_kernels());
  ~TestBench();
  TestBench(TestBench const&) = delete;
  TestBench& operator=(TestBench const&) = delete;

  LayerSpec spec(std::string const& name, Side side) {
    return {name, side, config_, dtype_, kernels(), parallel_, parameters_};
  }
  KernelSource kernels() const { return {registries_.kernels, choices_}; }
  Registries const& registries() const { return registries_; }
  ParameterSet& parameters() { return parameters_; }
  Arena& arena() { return arena_; }
  Execution& execution();
  LayerContext context(Pack const& pack, bool training = false) { return {execution(), arena_, pack, training, 5, 3}; }
  /// Allocates the declared parameters and gives them the golden values.
  void allocate();
  void zero_gradients();
  /// A whole step of an optimizer of all parameters; `step` is 1 for the first. Returns the gradients' norm before
  /// clipping, without the gradients of frozen parameters.
  double update(Optimizer const& optimizer, double learning_rate, std::int64_t step);
  /// An optimizer of all parameters.
  Optimizer optimizer(OptimizerConfig const& config) {
    return {config, kernels(), parameters_, {IndexRange{0, parameters_.gradient_size()}}};
  }

 private:
  ModelConfig config_;
  DType dtype_;
  KernelChoices choices_;
  Registries registries_;
  ParallelState parallel_;
  ParameterSet parameters_;
  std::map<std::string, Tensor> matrix_state_;  ///< of the optimizer's matrices, by NAME/KEY
  Arena arena_;
  Arena scratch_;
  std::unique_ptr<Execution> execution_;
};

/// The description of a model of built-in layers.
ModelDescription description_of(ModelConfig const& config);

/// A whole model on a bench. Parameters whose names match one of `frozen` have no gradient.
struct TestModel {
  TestModel(ModelConfig const& config, VocabularySizes const& vocabulary, DType dtype,
            KernelChoices const& choices = reference_kernels(), std::vector<std::string> const& frozen = {});

  TestBench bench;
  Model model;
};

/// The largest difference, relative to the largest magnitude of `expected`; infinite where the sizes differ.
double relative_error(std::vector<double> const& actual, std::vector<double> const& expected);

}  // namespace heddle
