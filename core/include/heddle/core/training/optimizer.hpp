#pragma once

#include <heddle/core/layers/layer.hpp>
#include <heddle/core/operations/adam.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/core/parameters/update_rules.hpp>
#include <heddle/core/tensor/uploaded_tensor.hpp>
#include <vector>

namespace heddle {

/// Adam over a parameter set's buffers, or over the ranges of them whose moments this rank keeps. Each parameter is
/// updated by the rule of its group. `update` is a whole step on one rank; on several, dist's DistributedOptimizer
/// calls `apply` for one range after another.
class Optimizer {
 public:
  /// The set must be allocated; its parameters get their rules. Moments start at zero. Throws as assign_rules does.
  Optimizer(OptimizerConfig const& config, KernelSource const& kernels, ParameterSet& parameters);
  /// Keeps moments only for `parts` of the buffers, ascending and without overlaps.
  Optimizer(OptimizerConfig const& config, KernelSource const& kernels, ParameterSet& parameters,
            std::vector<IndexRange> parts);

  /// Applies the gradients with this learning rate; `step` is 1 for the first update. Returns the gradients' norm
  /// before clipping, without those of frozen parameters; if it is not finite nothing is changed. For an optimizer of
  /// the whole set.
  double update(Execution& execution, double learning_rate, std::int64_t step);

  /// The factor of every gradient in an update whose gradients have this norm.
  double gradient_scale(double norm) const;

  using Step = AdamStep;
  /// Gives the next calls of apply the numbers of a step.
  void begin(Step const& step) const;
  /// Updates the buffers' elements in `range`, which must lie within one of the parts: one call of the kernel for each
  /// rule among them, none for frozen parameters. The caller increments the versions, once.
  void apply(Execution& execution, IndexRange const& range) const;

  std::vector<IndexRange> const& parts() const { return parts_; }
  /// The moments [Σ part.count()], in the order of the parts.
  Tensor const& first_moments() const { return first_moments_; }
  Tensor const& second_moments() const { return second_moments_; }
  /// The moments of the buffers' elements in `range`, [range.count()]; throws Error unless it lies within one part.
  Tensor moments_in(Tensor const& moments, IndexRange const& range) const;
  /// A parameter's moments in its local shape, if one part has all of them.
  Tensor moment_of(Parameter const& parameter, Tensor const& moments) const;

 private:
  double sum_of_squares(Execution& execution) const;

  OptimizerConfig config_;
  ParameterSet& parameters_;
  std::vector<RuledRange> rules_;  ///< of the whole buffers
  std::vector<IndexRange> parts_;
  Tensor first_moments_;
  Tensor second_moments_;
  UploadedTensor scalars_;  ///< AdamCall::scalars of each of rules_
  std::shared_ptr<Adam> adam_;
  std::shared_ptr<TensorOps> tensor_ops_;
};

}  // namespace heddle
