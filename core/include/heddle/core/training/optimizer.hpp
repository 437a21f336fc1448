#pragma once

#include <heddle/core/layers/layer.hpp>
#include <heddle/core/operations/adam.hpp>
#include <heddle/core/parameters/update_rules.hpp>
#include <heddle/core/tensor/uploaded_tensor.hpp>
#include <vector>

namespace heddle {

/// The learning rate of update `step` (0 for the first) of `total_steps`. It grows linearly through the warm-up, whose
/// last update has `optimizer.learning_rate`, and then follows the schedule: inverse_sqrt falls with the square root
/// of the update's number (Vaswani et al. 2017), cosine and linear reach 0 after the last update, constant stays.
double learning_rate(OptimizerConfig const& optimizer, std::int64_t step, std::int64_t total_steps);

/// Adam over the ranges of a parameter set's buffers whose moments this rank keeps. Each parameter is updated by the
/// rule of its group. A step: `begin`, then `apply` for one range after another.
class Optimizer {
 public:
  /// The set must be allocated; its parameters get their rules. Keeps moments, which start at zero, for `parts` of the
  /// buffers, ascending and without overlaps. Throws as assign_rules does.
  Optimizer(OptimizerConfig const& config, KernelSource const& kernels, ParameterSet& parameters,
            std::vector<IndexRange> parts);

  /// The factor of every gradient in an update whose gradients have this norm.
  double gradient_scale(double norm) const {
    return config_.clip_norm > 0 && norm > config_.clip_norm ? config_.clip_norm / norm : 1;
  }

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

 private:
  OptimizerConfig config_;
  ParameterSet& parameters_;
  std::vector<RuledRange> rules_;  ///< of the whole buffers
  std::vector<IndexRange> parts_;
  Tensor first_moments_;
  Tensor second_moments_;
  UploadedTensor scalars_;  ///< AdamCall::scalars of each of rules_
  std::shared_ptr<Adam> adam_;
};

}  // namespace heddle
