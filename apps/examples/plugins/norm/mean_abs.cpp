// A plug-in: the kind of norm "mean_abs", x / (mean(|x|) + ε) * weight, with an L1 norm in place of RMSNorm's L2
// (Hoffer et al. 2018). A kind is an implementation of residual_norm that supports it: model.norm_kind names it.

#include "mean_abs.hpp"

#include <cmath>
#include <heddle/core/operations/residual_norm.hpp>
#include <heddle/core/plugins/entry.hpp>
#include <heddle/core/trials/trials.hpp>

#include "mean_abs_backward.hpp"

namespace mean_abs_plugin {

struct MeanAbs {
  static bool supports(heddle::ResidualNormProblem const& problem) {
    return problem.kind == "mean_abs" && !problem.bias;
  }
  template <class Element>
  static void forward(heddle::Execution& execution, heddle::ResidualNormCall const& call,
                      heddle::ResidualNormOutput const& output) {
    forward_as<Element>(execution, call, output);
  }
  template <class Element>
  static void backward(heddle::Execution& execution, heddle::ResidualNormCall const& call,
                       heddle::ResidualNormOutput const& output, heddle::Tensor const& grad_normalized,
                       heddle::Tensor const& grad_sum, heddle::ResidualNormGradients const& gradients) {
    add_weight_gradient<Element>(execution, output, grad_normalized, gradients);
    backward_as<Element>(execution, call, output, {grad_normalized, grad_sum}, gradients);
  }
};

std::vector<double> definition(std::span<double const> row, double epsilon) {
  double sum = 0;
  for (double const x : row) {
    sum += std::abs(x);
  }
  std::vector<double> normalized(row.begin(), row.end());
  for (double& x : normalized) {
    x /= sum / static_cast<double>(row.size()) + epsilon;
  }
  return normalized;
}

void register_all(heddle::Registries& registries) {
  registries.kernels.of<heddle::ResidualNorm>().add("mean_abs", 10,
                                                    std::make_shared<heddle::ResidualNormFrontEnd<MeanAbs>>());
  heddle::add_norm_trials(registries.kernels, "mean_abs", definition);
}

}  // namespace mean_abs_plugin

HEDDLE_PLUGIN(mean_abs_plugin::register_all)
