#include <algorithm>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/core/layers/low_rank.hpp>
#include <heddle/core/parameters/update_rules.hpp>
#include <set>

namespace heddle {

namespace {

/// The matrix that is not split with the weights has the gradients of its ranks' outputs or inputs.
MeshAxes partial_over(LowRank::Weights const& weights, int axis) {
  return weights.split_axis == axis ? MeshAxes{MeshAxis::tensor} : weights.partial_over;
}

ParameterBlock& declare_a(LayerSpec const& spec, LowRank::Weights const& weights,
                          std::vector<LowRank::Part> const& targets) {
  std::vector<ParameterSpec> specs;
  for (LowRank::Part const& part : targets) {
    specs.push_back({.name = part.name + adapter_suffixes[0],
                     .placement = {{spec.model.adapter.rank, weights.inputs},
                                   Placement::sharded_along(weights.split_axis == 1 ? 1 : -1),
                                   partial_over(weights, 0)},
                     .initializer = {Initializer::Kind::uniform, 1 / std::sqrt(static_cast<double>(weights.inputs))},
                     .matrix = true});
  }
  return spec.parameters.declare_block(std::move(specs));
}

Parameter& declare_b(LayerSpec const& spec, LowRank::Weights const& weights, LowRank::Part const& part) {
  return spec.parameters.declare({.name = part.name + adapter_suffixes[1],
                                  .placement = {{part.outputs, spec.model.adapter.rank},
                                                Placement::sharded_along(weights.split_axis == 0 ? 0 : -1),
                                                partial_over(weights, 1)},
                                  .initializer = Initializer::zeros(),
                                  .matrix = true});
}

std::shared_ptr<Gemm> select_gemm(LayerSpec const& spec, std::int64_t outputs, std::int64_t inputs) {
  return spec.kernels.select<Gemm>({.dtype = spec.dtype,
                                    .b_dtype = parameter_dtype(spec.dtype),
                                    .output_dtype = spec.dtype,
                                    .m = 64,
                                    .n = outputs,
                                    .k = inputs,
                                    .transpose_b = true});
}

}  // namespace

std::optional<LowRank> LowRank::declare(LayerSpec const& spec, Weights const& weights, std::vector<Part> const& parts) {
  std::vector<Part> targets;
  std::ranges::copy_if(parts, std::back_inserter(targets),
                       [&](Part const& part) { return has_adapter(spec.model.adapter, part.name); });
  return targets.empty() ? std::nullopt : std::optional(LowRank(spec, weights, targets));
}

LowRank::LowRank(LayerSpec const& spec, Weights const& weights, std::vector<Part> const& targets)
    : dropout_name_(targets.front().name + ".lora_dropout"),
      side_(spec.side),
      rate_(spec.model.adapter.dropout),
      stream_(weights.split_axis < 0),
      rank_(spec.model.adapter.rank),
      scale_(spec.model.adapter.alpha / static_cast<double>(rank_)),
      a_(declare_a(spec, weights, targets)),
      inputs_(a_.members.front()->local_shape[1]),
      gemm_(select_gemm(spec, std::ssize(targets) * rank_, inputs_)),
      sum_(rate_ > 0 ? spec.kernels.select<ResidualNorm>({spec.dtype, inputs_, static_cast<float>(rate_)}) : nullptr),
      tensor_ops_(spec.kernels.select<TensorOps>({spec.dtype})) {
  for (Part const& part : targets) {
    outputs_.push_back({part, declare_b(spec, weights, part), select_gemm(spec, part.local_outputs, rank_)});
  }
}

Dropout LowRank::dropout(LayerContext const& context) const {
  Dropout dropout = stream_ ? make_stream_dropout(context, rate_, dropout_name_, side_)
                            : make_dropout(context, rate_, dropout_name_, side_);
  dropout.first_column = static_cast<std::int32_t>(a_.members.front()->global_offset(1));
  return dropout;
}

Tensor LowRank::dropped(LayerContext& context, Tensor const& x) const {
  Dropout const dropout = this->dropout(context);
  if (!dropout.active()) {
    return x;
  }
  // The operation that drops also adds a residual, of which there is none here.
  Tensor const sum = context.arena.allocate(x.dtype(), x.shape());
  ArenaScope const scope(context.arena);
  Tensor const zeros = context.arena.allocate(x.dtype(), x.shape());
  tensor_ops_->fill(context.execution, zeros, 0);
  sum_->forward(context.execution, {.residual = zeros, .branch = x, .dropout = dropout, .weight = {}, .bias = {}},
                {.sum = sum, .normalized = {}, .mean = {}, .reciprocal_deviation = {}});
  return sum;
}

Tensor LowRank::projected(LayerContext& context, Tensor const& x) const {
  Tensor const u = context.arena.allocate(x.dtype(), {x.dim(0), std::ssize(outputs_) * rank_});
  gemm_->multiply(
      context.execution,
      {.a = x, .b = matrix(a_.value), .c = u, .bias = {}, .transpose_b = true, .b_weight = a_.weight_version()});
  tensor_ops_->scale(context.execution, u, scale_);
  return u;
}

void LowRank::forward(LayerContext& context, Tensor const& x, Tensor const& y) const {
  ArenaScope const scope(context.arena);
  Tensor const u = projected(context, dropped(context, x));
  for (std::size_t index = 0; index < outputs_.size(); ++index) {
    auto const& [part, b, gemm] = outputs_[index];
    gemm->multiply(context.execution, {.a = of_part(u, index),
                                       .b = b.value,
                                       .c = y.columns(part.first_column, part.local_outputs),
                                       .bias = {},
                                       .transpose_b = true,
                                       .accumulate = true,
                                       .b_weight = b.weight_version()});
  }
}

void LowRank::backward(LayerContext& context, Tensor const& grad_y, Tensor const& x, Tensor const& grad_x) const {
  ArenaScope const scope(context.arena);
  Tensor const input = dropped(context, x);
  Tensor const u = projected(context, input);
  Tensor const grad_u = context.arena.allocate(x.dtype(), u.shape());
  for (std::size_t index = 0; index < outputs_.size(); ++index) {
    auto const& [part, b, gemm] = outputs_[index];
    Tensor const grad_part = grad_y.columns(part.first_column, part.local_outputs);
    if (!b.gradient.empty()) {
      gemm->multiply(context.execution, {.a = grad_part,
                                         .b = of_part(u, index),
                                         .c = b.gradient,
                                         .bias = {},
                                         .transpose_a = true,
                                         .accumulate = true});
    }
    gemm->multiply(
        context.execution,
        {.a = grad_part, .b = b.value, .c = of_part(grad_u, index), .bias = {}, .b_weight = b.weight_version()});
  }
  tensor_ops_->scale(context.execution, grad_u, scale_);
  if (!a_.gradient.empty()) {
    gemm_->multiply(
        context.execution,
        {.a = grad_u, .b = input, .c = matrix(a_.gradient), .bias = {}, .transpose_a = true, .accumulate = true});
  }
  add_grad_input(context, grad_u, grad_x);
  context.progress();
}

void LowRank::add_grad_input(LayerContext& context, Tensor const& grad, Tensor const& grad_x) const {
  Dropout const dropout = this->dropout(context);
  GemmCall call{
      .a = grad, .b = matrix(a_.value), .c = grad_x, .bias = {}, .accumulate = true, .b_weight = a_.weight_version()};
  if (!dropout.active()) {
    gemm_->multiply(context.execution, call);
    return;
  }
  Tensor const undropped = context.arena.allocate(grad_x.dtype(), grad_x.shape());
  Tensor const kept = context.arena.allocate(grad_x.dtype(), grad_x.shape());
  call.c = undropped;
  call.accumulate = false;
  gemm_->multiply(context.execution, call);
  sum_->backward(context.execution,
                 {.residual = undropped, .branch = undropped, .dropout = dropout, .weight = {}, .bias = {}},
                 {.sum = undropped, .normalized = {}, .mean = {}, .reciprocal_deviation = {}}, {}, undropped,
                 {.residual = undropped, .branch = kept, .weight = {}, .bias = {}});
  tensor_ops_->add(context.execution, grad_x, kept);
}

bool has_adapter(AdapterConfig const& adapter, std::string const& projection) {
  auto const matches = [&](std::string const& pattern) { return matches_pattern(pattern, projection); };
  return adapter.rank > 0 && std::ranges::any_of(adapter.targets, matches);
}

bool is_of_adapter(std::string_view parameter) {
  return std::ranges::any_of(adapter_suffixes, [&](char const* suffix) { return parameter.ends_with(suffix); });
}

void require_targets_match(AdapterConfig const& adapter, std::vector<std::string> const& names) {
  std::set<std::string> projections;
  for (std::string const& name : names) {
    if (name.ends_with(adapter_suffixes[0])) {
      projections.insert(name.substr(0, name.size() - std::string_view(adapter_suffixes[0]).size()));
    }
  }
  for (std::string const& pattern : adapter.targets) {
    if (adapter.rank > 0 && std::ranges::none_of(projections, [&](std::string const& projection) {
          return matches_pattern(pattern, projection);
        })) {
      throw ConfigError(
          "{} has the pattern \"{}\", which matches no projection; projections are named as their "
          "parameters are, without .weight: \"decoder.layers.0.self_attention.q\" (q, k, v and out of "
          "attention; up, down and gate of feed_forward)",
          adapter.places.of("targets"), pattern);
    }
  }
}

}  // namespace heddle
