#include <algorithm>
#include <cmath>
#include <heddle/core/operations/elementwise_update.hpp>
#include <heddle/core/parallel/tensor_stream.hpp>

namespace heddle {

namespace {

/// Schedule-Free AdamW (Defazio et al. 2024): the base sequence z takes the steps, x is its weighted average, and the
/// values, at which gradients are computed, are y = beta1 x + (1 - beta1) z. A step weighs as much as the square of its
/// learning rate, which grows in the warm-up and is then constant.
struct ScheduleFreeAdamW {
  static constexpr std::size_t state_tensors = 3;

  double beta1, beta2, epsilon, weight_decay;

  explicit ScheduleFreeAdamW(UpdateCall const& call)
      : beta1(call.options[0]), beta2(call.options[1]), epsilon(call.options[2]), weight_decay(call.weight_decay) {}

  template <class Real>
  struct Factors {
    bool first;
    Real beta2, new2, epsilon, deviation_scale, gradient_scale, weight_decay, share, of_step, learning_rate, beyond;

    KOKKOS_INLINE_FUNCTION void update(Real& value, Real gradient, Real& second_moment, Real& base,
                                       Real& average) const {
      Real const g = gradient * gradient_scale;
      Real const z = first ? value : base;
      Real const v = beta2 * second_moment + new2 * g * g;
      Real const step = g / (std::sqrt(v) * deviation_scale + epsilon) + weight_decay * value;
      second_moment = v;
      base = z - learning_rate * step;
      value += share * (z - value) + of_step * step;
      average = value + beyond * (base - value);
    }
  };

  template <class Real>
  KOKKOS_INLINE_FUNCTION Factors<Real> factors(double const* scalars) const {
    double const learning_rate = scalars[update_scalars::learning_rate];
    double const correction = scalars[update_scalars::numbers];
    double const share = scalars[update_scalars::numbers + 1];
    return {.first = share == 1,
            .beta2 = static_cast<Real>(beta2),
            .new2 = static_cast<Real>(1 - beta2),
            .epsilon = static_cast<Real>(epsilon),
            .deviation_scale = static_cast<Real>(1 / std::sqrt(correction)),
            .gradient_scale = static_cast<Real>(scalars[update_scalars::gradient_scale]),
            .weight_decay = static_cast<Real>(weight_decay),
            .share = static_cast<Real>(share),
            .of_step = static_cast<Real>(learning_rate * (beta1 * (1 - share) - 1)),
            .learning_rate = static_cast<Real>(learning_rate),
            .beyond = static_cast<Real>(1 - 1 / beta1)};
  }
};

/// The weight of a step, as a part of the weights of all steps up to it.
double share_of(std::int64_t step, std::int64_t warmup_steps) {
  auto const warmup = static_cast<double>(std::max<std::int64_t>(warmup_steps, 1));
  auto const in_warmup = std::min(static_cast<double>(step), warmup);
  double const squares = in_warmup * (in_warmup + 1) * (2 * in_warmup + 1) / 6;
  double const after = static_cast<double>(step) - in_warmup;
  return in_warmup * in_warmup / (squares + after * warmup * warmup);
}

}  // namespace

void add_schedule_free_rule(KernelRegistries& registries) {
  auto const numbers = [](RuleOptions const& options, UpdateStep const& step) {
    return RuleDefinition::Numbers{1 - std::pow(options[1], static_cast<double>(step.step)),
                                   share_of(step.step, step.warmup_steps)};
  };
  RuleOption beta1 = RuleOption::fraction("beta1", 0.9, "part of the average in the values; default: 0.9");
  beta1.description.above_min = true;
  RuleOption epsilon{OptionDescription::number("epsilon", "added to the denominator; default: 1e-8"), 1e-8};
  epsilon.description.above_min = true;
  add_elementwise_rule<ScheduleFreeAdamW>(
      registries,
      {.name = "schedule_free_adamw",
       .state = {"schedule_free.second_moment", "schedule_free.base", average_key},
       .options = {beta1, RuleOption::fraction("beta2", 0.999, "decay rate of the second moment; default: 0.999"),
                   epsilon},
       .numbers = numbers});
}

}  // namespace heddle
