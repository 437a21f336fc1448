#include <fmt/format.h>

#include <array>
#include <heddle/core/base/error.hpp>
#include <heddle/core/layers/norm.hpp>

namespace heddle {

namespace {

std::shared_ptr<ResidualNorm> select_kernel(LayerSpec const& spec, Norm::Declaration const& declaration) {
  NormKind const kind = spec.model.norm_kind;
  try {
    return spec.kernels.select<ResidualNorm>({.dtype = spec.dtype,
                                              .d_model = declaration.columns,
                                              .dropout_rate = static_cast<float>(declaration.dropout),
                                              .kind = kind,
                                              .bias = traits_of(kind).bias});
  } catch (ConfigError const& error) {
    throw ConfigError(fmt::format("{} ({}, model.norm_kind = \"{}\")", error.what(), declaration.name, name_of(kind)));
  }
}

}  // namespace

Norm::Norm(LayerSpec const& spec, Declaration const& declaration)
    : kind_(spec.model.norm_kind), epsilon_(spec.model.norm_epsilon), kernel_(select_kernel(spec, declaration)) {
  auto const declare = [&](char const* part, Initializer const& initializer) {
    return &spec.parameters.declare({.name = declaration.name + part,
                                     .shape = {declaration.columns},
                                     .initializer = initializer,
                                     .shard = {},
                                     .gradient_partial_over = declaration.partial_over});
  };
  weight_ = declare(".weight", Initializer::ones());
  bias_ = traits_of(kind_).bias ? declare(".bias", Initializer::zeros()) : nullptr;
}

Norm::Norm(LayerSpec const& spec, double dropout)
    : epsilon_(spec.model.norm_epsilon),
      kernel_(spec.kernels.select<ResidualNorm>({spec.dtype, spec.model.d_model, static_cast<float>(dropout)})) {}

Norm Norm::of_stream(LayerSpec const& spec, std::string const& name, double dropout) {
  return {spec, {name, spec.model.d_model, spec.stream_axes(), dropout}};
}

Norm Norm::none(LayerSpec const& spec, double dropout) {
  return {spec, dropout};
}

Norm::Activations Norm::forward(LayerContext& context, Input const& input) const {
  Shape const& shape = input.residual.shape();
  DType const dtype = input.residual.dtype();
  ResidualNormCall call{.residual = input.residual,
                        .branch = input.branch,
                        .dropout = input.dropout,
                        .weight = weight_ != nullptr ? weight_->value : Tensor(),
                        .bias = bias_ != nullptr ? bias_->value : Tensor(),
                        .epsilon = epsilon_,
                        .kind = kind_};
  ResidualNormOutput output;
  if (!input.branch.empty()) {
    output.sum = context.arena.allocate(dtype, shape);
  }
  if (weight_ != nullptr) {
    DType const statistics = statistics_dtype(dtype);
    output.normalized = context.arena.allocate(dtype, shape);
    output.mean = context.arena.allocate(statistics, {shape[0]});
    output.reciprocal_deviation = context.arena.allocate(statistics, {shape[0]});
  }
  kernel_->forward(context.execution, call, output);
  if (input.branch.empty()) {
    output.sum = input.residual;
  }
  return {std::move(call), std::move(output)};
}

void Norm::backward(LayerContext& context, Activations const& activations, Gradients const& gradients) const {
  kernel_->backward(context.execution, activations.call, activations.output, gradients.normalized, gradients.sum,
                    {.residual = gradients.residual,
                     .branch = gradients.branch,
                     .weight = weight_ != nullptr ? weight_->gradient : Tensor(),
                     .bias = bias_ != nullptr ? bias_->gradient : Tensor()});
}

void Norm::done(LayerContext const& context) const {
  if (bias_ != nullptr) {
    context.uses_done(std::array<Parameter const*, 2>{weight_, bias_});
  } else if (weight_ != nullptr) {
    context.uses_done(std::array<Parameter const*, 1>{weight_});
  }
}

}  // namespace heddle
