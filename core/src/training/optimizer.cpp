#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/core/operations/adam.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/core/training/optimizer.hpp>

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

Optimizer::Optimizer(OptimizerConfig const& config, KernelSource const& kernels, ParameterSet& parameters)
    : Optimizer(config, kernels, parameters, {IndexRange{0, parameters.size()}}) {}

Optimizer::Optimizer(OptimizerConfig const& config, KernelSource const& kernels, ParameterSet& parameters,
                     std::vector<IndexRange> parts)
    : config_(config),
      parameters_(assign_rules(config, parameters)),
      rules_(ruled_ranges(parameters)),
      parts_(std::move(parts)),
      first_moments_(Tensor::allocate(parameters.values().dtype(), {elements_of(parts_)})),
      second_moments_(Tensor::allocate(parameters.values().dtype(), {elements_of(parts_)})),
      scalars_(DType::float64, {static_cast<std::int64_t>(rules_.size()), adam_scalars::count}),
      adam_(kernels.select<Adam>({parameters.values().dtype()})),
      tensor_ops_(kernels.select<TensorOps>({parameters.values().dtype()})) {}

double Optimizer::update(Execution& execution, double learning_rate, std::int64_t step) {
  double const norm = std::sqrt(sum_of_squares(execution));
  if (!std::isfinite(norm)) {
    return norm;
  }
  begin({.learning_rate = learning_rate, .gradient_scale = gradient_scale(norm), .step = step});
  apply(execution, {0, parameters_.size()});
  parameters_.bump_versions();
  return norm;
}

double Optimizer::sum_of_squares(Execution& execution) const {
  Tensor const sum = Tensor::allocate(DType::float64, {1});
  for (std::size_t index = 0; index < rules_.size();) {
    IndexRange counted = rules_[index].range;
    bool const frozen = rules_[index].rule.frozen;
    for (++index; index < rules_.size() && rules_[index].rule.frozen == frozen; ++index) {
      counted.end = rules_[index].range.end;
    }
    if (!frozen) {
      tensor_ops_->add_sum_of_squares(execution, parameters_.gradients().rows(counted.begin, counted.count()), sum);
    }
  }
  return to_host<double>(sum).front();
}

double Optimizer::gradient_scale(double norm) const {
  return config_.clip_norm > 0 && norm > config_.clip_norm ? config_.clip_norm / norm : 1;
}

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

Tensor Optimizer::moment_of(Parameter const& parameter, Tensor const& moments) const {
  IndexRange const held{parameter.place.begin, parameter.place.begin + parameter.local_shape.size()};
  return moments_in(moments, held).reshaped(parameter.local_shape);
}

}  // namespace heddle
