#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/core/training/optimizer.hpp>
#include <numbers>

namespace heddle {

namespace {

std::int64_t elements_of(std::vector<IndexRange> const& parts) {
  std::int64_t elements = 0;
  for (IndexRange const& part : parts) {
    elements += part.count();
  }
  return elements;
}

}  // namespace

double learning_rate(OptimizerConfig const& optimizer, std::int64_t step, std::int64_t total_steps) {
  double const peak = optimizer.learning_rate;
  auto const warmup = static_cast<double>(std::max<std::int64_t>(optimizer.warmup_steps, 1));
  double const update = static_cast<double>(step) + 1;
  if (step < optimizer.warmup_steps) {
    return peak * update / warmup;
  }
  // The progress grows from 0 at the end of the warm-up to 1 after the last update.
  auto const decay_steps = static_cast<double>(std::max<std::int64_t>(total_steps - optimizer.warmup_steps, 1));
  double const progress = std::min((update - static_cast<double>(optimizer.warmup_steps)) / decay_steps, 1.0);
  switch (optimizer.schedule) {
    case Schedule::inverse_sqrt:
      return peak * std::sqrt(warmup / update);
    case Schedule::cosine:
      return peak * 0.5 * (1 + std::cos(std::numbers::pi * progress));
    case Schedule::linear:
      return peak * (1 - progress);
    case Schedule::constant:
      return peak;
  }
  return peak;
}

Optimizer::Optimizer(OptimizerConfig const& config, KernelSource const& kernels, ParameterSet& parameters,
                     std::vector<IndexRange> parts)
    : config_(config),
      parameters_(assign_rules(config, parameters)),
      rules_(ruled_ranges(parameters)),
      parts_(std::move(parts)),
      first_moments_(Tensor::allocate(parameters.values().dtype(), {elements_of(parts_)})),
      second_moments_(Tensor::allocate(parameters.values().dtype(), {elements_of(parts_)})),
      scalars_(DType::float64, {static_cast<std::int64_t>(rules_.size()), adam_scalars::count}),
      adam_(kernels.select<Adam>({parameters.values().dtype()})) {}

void Optimizer::begin(Step const& step) const {
  auto* next = scalars_.host().data<double>();
  for (RuledRange const& ruled : rules_) {
    Step ruled_step = step;
    ruled_step.learning_rate *= ruled.rule.learning_rate_factor;
    next = std::ranges::copy(adam_scalars_of(config_.beta1, config_.beta2, ruled_step), next).out;
  }
  scalars_.upload();
}

void Optimizer::apply(Execution& execution, IndexRange const& range) const {
  for (std::size_t index = 0; index < rules_.size(); ++index) {
    auto const& [ruled, rule] = rules_[index];
    IndexRange const piece{std::max(range.begin, ruled.begin), std::min(range.end, ruled.end)};
    if (piece.begin >= piece.end || rule.frozen) {
      continue;
    }
    AdamCall const call{
        .value = parameters_.values().rows(piece.begin, piece.count()),
        .gradient = parameters_.gradients().rows(piece.begin, piece.count()),
        .first_moment = moments_in(first_moments_, piece),
        .second_moment = moments_in(second_moments_, piece),
        .scalars = scalars_.tensor().rows(static_cast<std::int64_t>(index), 1).reshaped({adam_scalars::count}),
        .beta1 = config_.beta1,
        .beta2 = config_.beta2,
        .epsilon = config_.epsilon,
        .weight_decay = rule.weight_decay,
        .decoupled = config_.name == OptimizerName::adamw};
    adam_->update(execution, call);
  }
}

Tensor Optimizer::moments_in(Tensor const& moments, IndexRange const& range) const {
  std::int64_t before = 0;
  for (IndexRange const& part : parts_) {
    if (range.begin >= part.begin && range.end <= part.end) {
      return moments.rows(before + range.begin - part.begin, range.count());
    }
    before += part.count();
  }
  throw Error(fmt::format("the moments of [{}, {}) are not kept in one part here", range.begin, range.end));
}

}  // namespace heddle
