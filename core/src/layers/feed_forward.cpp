#include "feed_forward.hpp"

#include <fmt/format.h>

#include <heddle/core/base/activation_functions.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/spelling.hpp>
#include <heddle/core/layers/linear.hpp>
#include <heddle/core/layers/registry.hpp>

namespace heddle {

ActivationProblem activation_problem(DType dtype, std::string const& name) {
  return {dtype, std::string(function_of_activation(name)), is_gated_activation(name)};
}

std::shared_ptr<Activation> select_activation(LayerSpec const& spec, ActivationProblem const& problem) {
  try {
    return spec.kernels.select<Activation>(problem);
  } catch (ConfigError const& error) {
    if (spec.kernels.choices.of(Activation::operation) != "auto") {
      throw;
    }
    std::vector<std::string> names;
    for (ActivationFunction const& function : activation_functions) {
      names.insert(names.end(), {std::string(function.name), std::string(function.gated)});
    }
    std::string const meant = nearest_spelling(spec.model.activation, names);
    throw ConfigError("{}: {}; gated ones are {}{}", spec.model.place("activation"), error.what(),
                      names_of_activations(&ActivationFunction::gated),
                      meant.empty() ? "" : fmt::format("; did you mean \"{}\"?", meant));
  }
}

namespace {

/// Computes down(dropout(activation(up(x)))) (Vaswani et al. 2017, §3.3) or, where model.activation is gated,
/// down(dropout(function(gate(x))) ∘ up(x)) (Shazeer 2020): "swiglu" with silu, "geglu" with gelu, "geglu_tanh" with
/// gelu_tanh, "reglu" with relu. Hidden columns are split over the tensor group.
class FeedForward final : public Layer {
 public:
  explicit FeedForward(LayerSpec const& spec)
      : dropout_name_(spec.name + ".dropout"),
        side_(spec.side),
        problem_(activation_problem(spec.dtype, spec.model.activation)),
        dropout_(spec.model.activation_dropout),
        up_(hidden_projection(spec, problem_.gated)),
        down_(spec.named(spec.name + ".down"), {spec.model.d_ff, spec.model.d_model}, Linear::Split::inputs),
        activation_(select_activation(spec, problem_)) {}

  HiddenStates forward(LayerContext& context, HiddenStates const& input, Saved& saved) const override {
    Tensor const hidden = up_.forward(context, input.hidden);
    Tensor const activated = context.arena.allocate(hidden.dtype(), activated_columns(hidden).shape());
    activation_->forward(context.execution, activation_call(context, hidden), activated);
    saved.keep(Activations{input.hidden, hidden, activated});
    return {down_.forward(context, activated), input.encoder_output};
  }

  HiddenStates backward(LayerContext& context, HiddenStates const& grad_output, Saved const& saved) const override {
    auto const& [input, hidden, activated] = saved.get<Activations>();
    Tensor const grad_activated = down_.backward(context, grad_output.hidden, activated);
    Tensor const grad_hidden = problem_.gated ? context.arena.allocate(hidden.dtype(), hidden.shape()) : grad_activated;
    ActivationCall call = activation_call(context, hidden);
    call.output = activated;
    activation_->backward(context.execution, call, grad_activated,
                          {activated_columns(grad_hidden), factor_columns(grad_hidden)});
    return {up_.backward(context, grad_hidden, input), grad_output.encoder_output};
  }

 private:
  struct Activations {
    Tensor input;
    Tensor hidden;     ///< before the activation: up(x), or gate(x) and up(x) side by side
    Tensor activated;  ///< after activation and dropout
  };
  static Linear hidden_projection(LayerSpec const& spec, bool gated) {
    std::int64_t const columns = spec.model.d_ff;
    return gated ? Linear(spec, spec.model.d_model, {{"gate", columns}, {"up", columns}}, Linear::Split::outputs)
                 : Linear(spec.named(spec.name + ".up"), {spec.model.d_model, columns}, Linear::Split::outputs);
  }
  /// This rank's hidden columns of `hidden`, or of its gradient.
  Tensor activated_columns(Tensor const& hidden) const {
    return problem_.gated ? hidden.columns(0, hidden.dim(1) / 2) : hidden;
  }
  /// The columns by which those are multiplied; empty without a gate.
  Tensor factor_columns(Tensor const& hidden) const {
    return problem_.gated ? hidden.columns(hidden.dim(1) / 2, hidden.dim(1) / 2) : Tensor();
  }
  ActivationCall activation_call(LayerContext const& context, Tensor const& hidden) const {
    ActivationCall call{problem_.function, activated_columns(hidden),
                        make_dropout(context, dropout_, dropout_name_, side_)};
    call.gate = factor_columns(hidden);
    call.dropout.first_column = up_.first_output();
    return call;
  }

  std::string dropout_name_;
  Side side_;
  ActivationProblem problem_;
  double dropout_;
  Linear up_;
  Linear down_;
  std::shared_ptr<Activation> activation_;
};

LayerTraits feed_forward_traits() {
  auto const cost = [](ModelConfig const& keys, LayerOptions const&, LayerLoad const& load) {
    ActivationProblem const activation = activation_problem(load.dtype, keys.activation);
    auto const projection = [&](char const* name, std::int64_t inputs, std::int64_t outputs) {
      return projection_cost(keys, load, load.path + name, inputs, outputs);
    };
    Cost const gate = activation.gated ? projection(".gate", keys.d_model, keys.d_ff) : Cost();
    return gate + projection(".up", keys.d_model, keys.d_ff) + projection(".down", keys.d_ff, keys.d_model) +
           forward_cost(activation, load.tokens * static_cast<double>(keys.d_ff));
  };
  auto const unsupported_reason = [](ModelConfig const& keys, LayerOptions const&, LayerUse const& use) {
    return uneven_over_tensor(keys.place("d_ff"), keys.d_ff, use);
  };
  std::vector<LayerTrial> trials;
  for (char const* const activation : {"relu", "gelu", "swiglu"}) {
    trials.push_back({.name = activation, .set = [activation](ModelConfig& keys) { keys.activation = activation; }});
  }
  trials.push_back({.name = "adapters", .set = [](ModelConfig& keys) {
                      keys.adapter.rank = 3;
                      keys.adapter.dropout = 0.2;
                      keys.adapter.targets = {"*"};
                    }});
  return {.cost = cost, .unsupported_reason = unsupported_reason, .trials = std::move(trials)};
}

}  // namespace

std::unique_ptr<Layer> make_feed_forward(LayerSpec const& spec) {
  return std::make_unique<FeedForward>(spec);
}

void register_feed_forward(LayerRegistry& registry) {
  registry.add<FeedForward>("feed_forward", feed_forward_traits());
}

}  // namespace heddle
