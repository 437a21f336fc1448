#include <heddle/core/operations/elementwise_update.hpp>

namespace heddle {

namespace {

/// Lion (Chen et al. 2023), with decoupled weight decay: the update's size is the learning rate in every element.
struct Lion {
  static constexpr std::size_t state_tensors = 1;

  double beta1, beta2, weight_decay;

  explicit Lion(UpdateCall const& call)
      : beta1(call.options[0]), beta2(call.options[1]), weight_decay(call.weight_decay) {}

  template <class Real>
  struct Factors {
    Real beta1, beta2, new1, new2, gradient_scale, learning_rate, kept;

    KOKKOS_INLINE_FUNCTION void update(Real& value, Real gradient, Real& momentum) const {
      Real const g = gradient * gradient_scale;
      Real const direction = beta1 * momentum + new1 * g;
      Real const sign = static_cast<Real>(direction > 0) - static_cast<Real>(direction < 0);
      momentum = beta2 * momentum + new2 * g;
      value = kept * value - learning_rate * sign;
    }
  };

  template <class Real>
  KOKKOS_INLINE_FUNCTION Factors<Real> factors(double const* scalars) const {
    double const learning_rate = scalars[update_scalars::learning_rate];
    return {.beta1 = static_cast<Real>(beta1),
            .beta2 = static_cast<Real>(beta2),
            .new1 = static_cast<Real>(1 - beta1),
            .new2 = static_cast<Real>(1 - beta2),
            .gradient_scale = static_cast<Real>(scalars[update_scalars::gradient_scale]),
            .learning_rate = static_cast<Real>(learning_rate),
            .kept = static_cast<Real>(1 - learning_rate * weight_decay)};
  }
};

}  // namespace

void add_lion_rule(KernelRegistries& registries) {
  add_elementwise_rule<Lion>(
      registries,
      {.name = "lion",
       .state = {"lion.momentum"},
       .options = {RuleOption::fraction("beta1", 0.9, "weight of the momentum in an update's direction; default: 0.9"),
                   RuleOption::fraction("beta2", 0.99, "decay rate of the momentum; default: 0.99")}});
}

}  // namespace heddle
