// A plug-in: the update rule "rmsprop" (Tieleman & Hinton 2012), the gradient divided by the root of its mean square.
// The class changes one element; its kernels, a reference among them, are made of it.

#include <cmath>
#include <heddle/core/operations/elementwise_update.hpp>
#include <heddle/core/plugins/entry.hpp>

namespace rmsprop_plugin {

struct Rmsprop {
  static constexpr std::size_t state_tensors = 1;

  double decay, epsilon, weight_decay;

  explicit Rmsprop(heddle::UpdateCall const& call)
      : decay(call.options[0]), epsilon(call.options[1]), weight_decay(call.weight_decay) {}

  template <class Real>
  struct Factors {
    Real decay, added, epsilon, weight_decay, gradient_scale, learning_rate;

    KOKKOS_INLINE_FUNCTION void update(Real& value, Real gradient, Real& mean_square) const {
      Real const g = gradient * gradient_scale + weight_decay * value;
      mean_square = decay * mean_square + added * g * g;
      value -= learning_rate * g / (std::sqrt(mean_square) + epsilon);
    }
  };

  template <class Real>
  KOKKOS_INLINE_FUNCTION Factors<Real> factors(double const* scalars) const {
    return {.decay = static_cast<Real>(decay),
            .added = static_cast<Real>(1 - decay),
            .epsilon = static_cast<Real>(epsilon),
            .weight_decay = static_cast<Real>(weight_decay),
            .gradient_scale = static_cast<Real>(scalars[heddle::update_scalars::gradient_scale]),
            .learning_rate = static_cast<Real>(scalars[heddle::update_scalars::learning_rate])};
  }
};

void register_all(heddle::Registries& registries) {
  using heddle::OptionDescription;
  heddle::RuleOption const decay{{.name = "decay",
                                  .type = OptionDescription::Type::number,
                                  .meaning = "decay rate of the mean square; default: 0.9",
                                  .max = 1,
                                  .below_max = true},
                                 0.9};
  heddle::RuleOption const epsilon{
      {.name = "epsilon", .type = OptionDescription::Type::number, .meaning = "added to the root; default: 1e-8"},
      1e-8};
  heddle::add_elementwise_rule<Rmsprop>(
      registries.kernels, {.name = "rmsprop", .state = {"rmsprop.mean_square"}, .options = {decay, epsilon}});
}

}  // namespace rmsprop_plugin

HEDDLE_PLUGIN(rmsprop_plugin::register_all)
