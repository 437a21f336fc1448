#include <cmath>
#include <heddle/core/operations/elementwise_update.hpp>

namespace heddle {

namespace {

/// Adam (Kingma & Ba 2015), and AdamW, whose weight decay is decoupled from the gradient (Loshchilov & Hutter 2019).
struct Adam {
  static constexpr std::size_t state_tensors = 2;

  double beta1, beta2, epsilon, weight_decay;
  bool decoupled;

  explicit Adam(UpdateCall const& call)
      : beta1(call.options[0]),
        beta2(call.options[1]),
        epsilon(call.options[2]),
        weight_decay(call.weight_decay),
        decoupled(call.rule == "adamw") {}

  template <class Real>
  struct Factors {
    Real beta1, beta2, new1, new2, epsilon, step_size, deviation_scale, gradient_scale, gradient_decay, kept;

    KOKKOS_INLINE_FUNCTION void update(Real& value, Real gradient, Real& first_moment, Real& second_moment) const {
      Real const g = gradient * gradient_scale + gradient_decay * value;
      Real const m = beta1 * first_moment + new1 * g;
      Real const v = beta2 * second_moment + new2 * g * g;
      first_moment = m;
      second_moment = v;
      value = kept * value - step_size * m / (std::sqrt(v) * deviation_scale + epsilon);
    }
  };

  template <class Real>
  KOKKOS_INLINE_FUNCTION Factors<Real> factors(double const* scalars) const {
    double const learning_rate = scalars[update_scalars::learning_rate];
    double const* const corrections = scalars + update_scalars::numbers;
    return {.beta1 = static_cast<Real>(beta1),
            .beta2 = static_cast<Real>(beta2),
            .new1 = static_cast<Real>(1 - beta1),
            .new2 = static_cast<Real>(1 - beta2),
            .epsilon = static_cast<Real>(epsilon),
            .step_size = static_cast<Real>(learning_rate / corrections[0]),
            .deviation_scale = static_cast<Real>(1 / std::sqrt(corrections[1])),
            .gradient_scale = static_cast<Real>(scalars[update_scalars::gradient_scale]),
            .gradient_decay = static_cast<Real>(decoupled ? 0 : weight_decay),
            .kept = static_cast<Real>(decoupled ? 1 - learning_rate * weight_decay : 1)};
  }
};

RuleDefinition definition(std::string const& name) {
  auto const corrections = [](RuleOptions const& options, UpdateStep const& step) {
    auto const at = static_cast<double>(step.step);
    return RuleDefinition::Numbers{1 - std::pow(options[0], at), 1 - std::pow(options[1], at)};
  };
  return {.name = name,
          .state = {"adam.first_moment", "adam.second_moment"},
          .options = {RuleOption::fraction("beta1", 0.9, "decay rate of the first moment; default: 0.9"),
                      RuleOption::fraction("beta2", 0.98, "decay rate of the second moment; default: 0.98"),
                      {{.name = "epsilon",
                        .type = OptionDescription::Type::number,
                        .meaning = "added to the denominator; default: 1e-9",
                        .above_min = true},
                       1e-9}},
          .numbers = corrections};
}

}  // namespace

void add_adam_rule(KernelRegistries& registries) {
  add_elementwise_rule<Adam>(registries, definition("adam"));
  add_elementwise_rule<Adam>(registries, definition("adamw"));
}

}  // namespace heddle
