#include <fmt/format.h>

#include <heddle/core/base/error.hpp>
#include <heddle/core/base/spelling.hpp>
#include <heddle/core/layers/norm.hpp>

namespace heddle {

namespace {

ResidualNormProblem problem_of(LayerSpec const& spec, Norm::Declaration const& declaration) {
  std::string const& kind = spec.model.norm_kind;
  ResidualNormProblem problem{.dtype = spec.dtype,
                              .d_model = declaration.columns,
                              .dropout_rate = static_cast<float>(declaration.dropout),
                              .kind = kind};
  NormTraits const* const traits = built_in_norm(kind);
  problem.bias = traits != nullptr ? traits->bias : spec.kernels.registries.supported<ResidualNorm>(problem);
  return problem;
}

std::shared_ptr<ResidualNorm> select_kernel(LayerSpec const& spec, Norm::Declaration const& declaration) {
  try {
    return spec.kernels.select<ResidualNorm>(problem_of(spec, declaration));
  } catch (ConfigError const& error) {
    std::string const meant = nearest_spelling(spec.model.norm_kind, {"layer", "rms"});
    throw ConfigError("{} ({}, {} = \"{}\"){}; \"layer\" and \"rms\" are built in, plug-ins add others", error.what(),
                      declaration.name, spec.model.place("norm_kind"), spec.model.norm_kind,
                      meant.empty() ? "" : fmt::format("; did you mean \"{}\"?", meant));
  }
}

}  // namespace

Norm::Norm(LayerSpec const& spec, Declaration const& declaration)
    : kind_(spec.model.norm_kind), epsilon_(spec.model.norm_epsilon), kernel_(select_kernel(spec, declaration)) {
  auto const declare = [&](char const* part, Initializer const& initializer) {
    Parameter& declared = spec.parameters.declare({.name = declaration.name + part,
                                                   .placement = {{declaration.columns}, {}, declaration.partial_over},
                                                   .initializer = initializer});
    parameters_.push_back(&declared);
    return &declared;
  };
  weight_ = declare(".weight", Initializer::ones());
  bias_ = problem_of(spec, declaration).bias ? declare(".bias", Initializer::zeros()) : nullptr;
}

Norm::Norm(LayerSpec const& spec, double dropout)
    : epsilon_(spec.model.norm_epsilon),
      kernel_(spec.kernels.select<ResidualNorm>({spec.dtype, spec.model.d_model, static_cast<float>(dropout)})) {}

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
                     .weight = weight_ != nullptr ? context.gradient_of(*weight_) : Tensor(),
                     .bias = bias_ != nullptr ? context.gradient_of(*bias_) : Tensor()});
}

}  // namespace heddle
