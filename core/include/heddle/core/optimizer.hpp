#pragma once

#include <heddle/core/layer.hpp>

namespace heddle {

/// Adam over a parameter set, with clipping by the global norm.
class Optimizer {
 public:
  /// The set is allocated. Moments start at zero.
  Optimizer(OptimizerConfig const& config, KernelSource const& kernels, ParameterSet& parameters);

  /// Applies the gradients with this learning rate; `step` is 1 for the first update. Returns the gradients' norm
  /// before clipping; where it is not finite nothing is changed.
  double update(Execution& execution, double learning_rate, std::int64_t step);

  Tensor const& first_moments() const { return first_moments_; }    ///< [parameters.size()]
  Tensor const& second_moments() const { return second_moments_; }  ///< [parameters.size()]
  /// A parameter's part of a moment buffer, in its local shape.
  Tensor moment_of(Parameter const& parameter, Tensor const& moments) const;

 private:
  OptimizerConfig config_;
  ParameterSet& parameters_;
  Tensor first_moments_;
  Tensor second_moments_;
  std::shared_ptr<Adam> adam_;
  std::shared_ptr<TensorOps> tensor_ops_;
};

}  // namespace heddle
