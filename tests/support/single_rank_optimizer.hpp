#pragma once

#include <cmath>
#include <heddle/core/training/optimizer.hpp>

namespace heddle::test {

/// Updates a whole parameter set on one rank.
class SingleRankOptimizer : public Optimizer {
 public:
  SingleRankOptimizer(OptimizerConfig const& config, KernelSource const& kernels, ParameterSet& parameters)
      : Optimizer(config, kernels, parameters, {IndexRange{0, parameters.size()}}),
        parameters_(parameters),
        tensor_ops_(kernels.select<TensorOps>({parameters.values().dtype()})) {}

  /// Applies the gradients; `step` is 1 for the first update. Returns the gradients' norm before clipping, without
  /// those of frozen parameters; if it is not finite nothing is changed.
  double update(Execution& execution, double learning_rate, std::int64_t step) {
    double const norm = std::sqrt(sum_of_squares(execution));
    if (std::isfinite(norm)) {
      begin({.learning_rate = learning_rate, .gradient_scale = gradient_scale(norm), .step = step});
      apply(execution, {0, parameters_.size()});
      parameters_.bump_versions();
    }
    return norm;
  }

  /// A parameter's moments in its local shape.
  Tensor moment_of(Parameter const& parameter, Tensor const& moments) const {
    IndexRange const held{parameter.place.begin, parameter.place.begin + parameter.local_shape.size()};
    return moments_in(moments, held).reshaped(parameter.local_shape);
  }

 private:
  double sum_of_squares(Execution& execution) const {
    Tensor const sum = Tensor::allocate(DType::float64, {1});
    std::vector<RuledRange> const rules = ruled_ranges(parameters_);
    for (std::size_t index = 0; index < rules.size();) {
      IndexRange counted = rules[index].range;
      bool const frozen = rules[index].rule.frozen;
      for (++index; index < rules.size() && rules[index].rule.frozen == frozen; ++index) {
        counted.end = rules[index].range.end;
      }
      if (!frozen) {
        tensor_ops_->add_sum_of_squares(execution, parameters_.gradients().rows(counted.begin, counted.count()), sum);
      }
    }
    return to_host<double>(sum).front();
  }

  ParameterSet& parameters_;
  std::shared_ptr<TensorOps> tensor_ops_;
};

}  // namespace heddle::test
