#include <fmt/format.h>

#include <heddle/core/base/error.hpp>
#include <heddle/core/layers/feed_forward.hpp>
#include <heddle/core/operations/activation.hpp>

namespace heddle {

namespace {

/// Selects the kernel. A function that no implementation has is an error of the layer's key; a wrong choice of the
/// implementation is one of kernels.activation.
std::shared_ptr<Activation> select_activation(LayerSpec const& spec) {
  try {
    return spec.kernels.select<Activation>({spec.dtype, spec.model.activation});
  } catch (ConfigError const& error) {
    if (spec.kernels.choices.of(Activation::operation) != "auto") {
      throw;
    }
    throw ConfigError(fmt::format("{}: {}", spec.model.place("activation"), error.what()));
  }
}

}  // namespace

FeedForward::FeedForward(LayerSpec const& spec)
    : name_(spec.name),
      side_(spec.side),
      function_(spec.model.activation),
      dropout_(spec.model.activation_dropout),
      up_(spec.named(spec.name + ".up"), {spec.model.d_model, spec.model.d_ff}, Linear::Split::outputs),
      down_(spec.named(spec.name + ".down"), {spec.model.d_ff, spec.model.d_model}, Linear::Split::inputs),
      activation_(select_activation(spec)) {}

LayerTraits FeedForward::traits() {
  auto const cost = [](ModelConfig const& keys, LayerOptions const&, LayerLoad const& load) {
    ActivationProblem const activation{load.dtype, keys.activation};
    return linear_cost(load, keys.d_model, keys.d_ff) + linear_cost(load, keys.d_ff, keys.d_model) +
           forward_cost(activation, load.tokens * static_cast<double>(keys.d_ff));
  };
  auto const refusal = [](ModelConfig const& keys, LayerOptions const&, LayerUse const& use) {
    return uneven_over_tensor(keys.place("d_ff"), keys.d_ff, use);
  };
  return {.cost = cost, .refusal = refusal};
}

ActivationCall FeedForward::activation_call(LayerContext const& context, Tensor const& hidden) const {
  ActivationCall call{function_, hidden, make_dropout(context, dropout_, name_ + ".dropout", side_)};
  call.dropout.first_column = up_.first_output();
  return call;
}

HiddenStates FeedForward::forward(LayerContext& context, HiddenStates const& input, Saved& saved) const {
  Tensor const hidden = up_.forward(context, input.hidden);
  Tensor const activated = context.arena.allocate(hidden.dtype(), hidden.shape());
  activation_->forward(context.execution, activation_call(context, hidden), activated);
  saved.keep(Activations{input.hidden, hidden, activated});
  return {down_.forward(context, activated), input.memory};
}

HiddenStates FeedForward::backward(LayerContext& context, HiddenStates const& grad_output, Saved const& saved) const {
  auto const& [input, hidden, activated] = saved.get<Activations>();
  Tensor const grad_hidden = down_.backward(context, grad_output.hidden, activated);
  ActivationCall call = activation_call(context, hidden);
  call.output = activated;
  activation_->backward(context.execution, call, grad_hidden, {grad_hidden});
  return {up_.backward(context, grad_hidden, input), grad_output.memory};
}

}  // namespace heddle
