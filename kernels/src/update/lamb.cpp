#include <cmath>
#include <heddle/core/operations/elementwise_update.hpp>

namespace heddle {

namespace {

/// LAMB (You et al. 2020): Adam's step with decoupled decay, as large as the parameter itself. The paper's function of
/// the parameter's norm is the identity; where a norm is zero the ratio is 1.
struct Lamb {
  struct Direction {
    static constexpr std::size_t state_tensors = 2;

    double beta1, beta2, epsilon, weight_decay;

    explicit Direction(UpdateCall const& call)
        : beta1(call.options[0]), beta2(call.options[1]), epsilon(call.options[2]), weight_decay(call.weight_decay) {}

    template <class Real>
    struct Factors {
      Real beta1, beta2, new1, new2, epsilon, mean_scale, deviation_scale, gradient_scale, weight_decay;

      KOKKOS_INLINE_FUNCTION void update(Real& direction, Real gradient, Real& first_moment,
                                         Real& second_moment) const {
        Real const g = gradient * gradient_scale;
        Real const m = beta1 * first_moment + new1 * g;
        Real const v = beta2 * second_moment + new2 * g * g;
        first_moment = m;
        second_moment = v;
        direction = m * mean_scale / (std::sqrt(v) * deviation_scale + epsilon) + weight_decay * direction;
      }
    };

    template <class Real>
    KOKKOS_INLINE_FUNCTION Factors<Real> factors(double const* scalars) const {
      double const* const corrections = scalars + update_scalars::numbers;
      return {.beta1 = static_cast<Real>(beta1),
              .beta2 = static_cast<Real>(beta2),
              .new1 = static_cast<Real>(1 - beta1),
              .new2 = static_cast<Real>(1 - beta2),
              .epsilon = static_cast<Real>(epsilon),
              .mean_scale = static_cast<Real>(1 / corrections[0]),
              .deviation_scale = static_cast<Real>(1 / std::sqrt(corrections[1])),
              .gradient_scale = static_cast<Real>(scalars[update_scalars::gradient_scale]),
              .weight_decay = static_cast<Real>(weight_decay)};
    }
  };

  struct Step {
    static constexpr std::size_t state_tensors = 0;

    explicit Step(UpdateCall const& /*call*/) {}

    template <class Real>
    struct Factors {
      Real taken;
      KOKKOS_INLINE_FUNCTION void update(Real& value, Real direction) const { value -= taken * direction; }
    };

    template <class Real>
    KOKKOS_INLINE_FUNCTION Factors<Real> factors(double const* scalars) const {
      double const value = scalars[update_scalars::value_size];
      double const direction = scalars[update_scalars::direction_size];
      double const ratio = value > 0 && direction > 0 ? value / direction : 1;
      return {.taken = static_cast<Real>(scalars[update_scalars::learning_rate] * ratio)};
    }
  };
};

}  // namespace

void add_lamb_rule(KernelRegistries& registries) {
  auto const corrections = [](RuleOptions const& options, UpdateStep const& step) {
    auto const at = static_cast<double>(step.step);
    return RuleDefinition::Numbers{1 - std::pow(options[0], at), 1 - std::pow(options[1], at)};
  };
  add_whole_rule<Lamb>(
      registries, {.name = "lamb",
                   .state = {"lamb.first_moment", "lamb.second_moment"},
                   .options = {RuleOption::fraction("beta1", 0.9, "decay rate of the first moment; default: 0.9"),
                               RuleOption::fraction("beta2", 0.999, "decay rate of the second moment; default: 0.999"),
                               {{.name = "epsilon",
                                 .type = OptionDescription::Type::number,
                                 .meaning = "added to the denominator; default: 1e-6",
                                 .above_min = true},
                                1e-6}},
                   .numbers = corrections,
                   .sizes = true});
}

}  // namespace heddle
