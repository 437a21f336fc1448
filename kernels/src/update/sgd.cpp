#include <heddle/core/operations/elementwise_update.hpp>

namespace heddle {

namespace {

/// Stochastic gradient descent with momentum (Sutskever et al. 2013), as PyTorch has it: weight decay is added to the
/// gradient, and the learning rate multiplies the sum of gradients that the momentum is.
struct Sgd {
  static constexpr std::size_t state_tensors = 1;

  double momentum;
  bool nesterov;
  double weight_decay;

  explicit Sgd(UpdateCall const& call)
      : momentum(call.options[0]), nesterov(call.options[1] != 0), weight_decay(call.weight_decay) {}

  template <class Real>
  struct Factors {
    Real momentum, of_momentum, of_gradient, gradient_scale, weight_decay, learning_rate;

    KOKKOS_INLINE_FUNCTION void update(Real& value, Real gradient, Real& sum) const {
      Real const g = gradient * gradient_scale + weight_decay * value;
      sum = momentum * sum + g;
      value -= learning_rate * (of_gradient * g + of_momentum * sum);
    }
  };

  template <class Real>
  KOKKOS_INLINE_FUNCTION Factors<Real> factors(double const* scalars) const {
    return {.momentum = static_cast<Real>(momentum),
            .of_momentum = static_cast<Real>(nesterov ? momentum : 1),
            .of_gradient = static_cast<Real>(nesterov ? 1 : 0),
            .gradient_scale = static_cast<Real>(scalars[update_scalars::gradient_scale]),
            .weight_decay = static_cast<Real>(weight_decay),
            .learning_rate = static_cast<Real>(scalars[update_scalars::learning_rate])};
  }
};

}  // namespace

void add_sgd_rule(KernelRegistries& registries) {
  add_elementwise_rule<Sgd>(
      registries,
      {.name = "sgd",
       .state = {"sgd.momentum"},
       .options = {RuleOption::fraction("momentum", 0.9, "decay rate of the sum of gradients; default: 0.9"),
                   RuleOption::boolean("nesterov", false, "look one update ahead; default: false")}});
}

}  // namespace heddle
