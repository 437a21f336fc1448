#include <algorithm>
#include <cmath>
#include <heddle/core/optimizer.hpp>

namespace heddle {

Optimizer::Optimizer(OptimizerConfig const& config, KernelSource const& kernels, ParameterSet& parameters)
    : config_(config),
      parameters_(parameters),
      first_moments_(Tensor::allocate(parameters.values().dtype(), {parameters.size()})),
      second_moments_(Tensor::allocate(parameters.values().dtype(), {parameters.size()})),
      adam_(kernels.adam({parameters.values().dtype()})),
      tensor_ops_(kernels.tensor_ops({parameters.values().dtype()})) {}

double Optimizer::update(Execution& execution, double learning_rate, std::int64_t step) {
  double const norm = std::sqrt(tensor_ops_->sum_of_squares(execution, parameters_.gradients()));
  if (!std::isfinite(norm)) {
    return norm;
  }
  bool const clip = config_.clip_norm > 0 && norm > config_.clip_norm;
  adam_->update(execution, {.value = parameters_.values(),
                            .gradient = parameters_.gradients(),
                            .first_moment = first_moments_,
                            .second_moment = second_moments_,
                            .gradient_scale = clip ? config_.clip_norm / norm : 1,
                            .learning_rate = learning_rate,
                            .beta1 = config_.beta1,
                            .beta2 = config_.beta2,
                            .epsilon = config_.epsilon,
                            .weight_decay = config_.weight_decay,
                            .decoupled = config_.name == OptimizerName::adamw,
                            .step = step});
  parameters_.bump_versions();
  return norm;
}

Tensor Optimizer::moment_of(Parameter const& parameter, Tensor const& moments) const {
  auto const* const begin = static_cast<unsigned char const*>(parameters_.values().raw());
  auto const* const value = static_cast<unsigned char const*>(parameter.value.raw());
  auto const offset = (value - begin) / static_cast<std::int64_t>(size_of(moments.dtype()));
  return moments.rows(offset, parameter.value.size()).reshaped(parameter.local_shape);
}

}  // namespace heddle
