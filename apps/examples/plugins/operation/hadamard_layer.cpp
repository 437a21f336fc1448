// A plug-in: the operation "hadamard" and a layer that calls it, down(gate(x) ∘ up(x)) (Dauphin et al. 2017, without
// their sigmoid).

#include <heddle/core/layers/linear.hpp>
#include <heddle/core/plugins/entry.hpp>

#include "hadamard.hpp"

namespace hadamard_plugin {

using heddle::HiddenStates;
using heddle::LayerContext;
using heddle::LayerSpec;
using heddle::Linear;
using heddle::Saved;
using heddle::Tensor;

class HadamardLayer final : public heddle::Layer {
 public:
  explicit HadamardLayer(LayerSpec const& spec)
      : gate_(spec.named(spec.name + ".gate"), {spec.model.d_model, spec.model.d_ff}, Linear::Split::outputs),
        up_(spec.named(spec.name + ".up"), {spec.model.d_model, spec.model.d_ff}, Linear::Split::outputs),
        down_(spec.named(spec.name + ".down"), {spec.model.d_ff, spec.model.d_model}, Linear::Split::inputs),
        hadamard_(spec.kernels.select<Hadamard>({spec.dtype})) {}

  HiddenStates forward(LayerContext& context, HiddenStates const& input, Saved& saved) const override {
    Tensor const gate = gate_.forward(context, input.hidden);
    Tensor const up = up_.forward(context, input.hidden);
    Tensor const product = context.arena.allocate(up.dtype(), up.shape());
    hadamard_->forward(context.execution, gate, up, product);
    saved.keep(Activations{input.hidden, gate, up, product});
    return {down_.forward(context, product), input.encoder_output};
  }

  HiddenStates backward(LayerContext& context, HiddenStates const& grad_output, Saved const& saved) const override {
    auto const& [input, gate, up, product] = saved.get<Activations>();
    Tensor const grad = down_.backward(context, grad_output.hidden, product);
    Tensor const grad_up = context.arena.allocate(up.dtype(), up.shape());
    hadamard_->backward(context.execution, gate, up, grad, {grad, grad_up});
    Tensor const grad_input = up_.backward(context, grad_up, input);
    gate_.backward_add(context, grad, input, grad_input);
    return {grad_input, grad_output.encoder_output};
  }

 private:
  struct Activations {
    Tensor input, gate, up, product;
  };

  Linear gate_, up_, down_;
  std::shared_ptr<Hadamard> hadamard_;
};

void register_all(heddle::Registries& registries) {
  registries.kernels.of<Hadamard>().add("portable", 10, make_portable());
  registries.kernels.of<Hadamard>().add_trial("7 x 19", make_trial);
  // The cost that the pipeline cut uses: three products with a parameter of [d_ff, d_model].
  auto const cost = [](heddle::ModelConfig const& keys, heddle::LayerOptions const&, heddle::LayerLoad const& load) {
    return 2 * heddle::linear_cost(load, keys.d_model, keys.d_ff) + heddle::linear_cost(load, keys.d_ff, keys.d_model);
  };
  auto const unsupported_reason = [](heddle::ModelConfig const& keys, heddle::LayerOptions const&,
                                     heddle::LayerUse const& use) {
    return heddle::uneven_over_tensor("model.d_ff", keys.d_ff, use);
  };
  registries.layers.add<HadamardLayer>("hadamard_layer", {.cost = cost, .unsupported_reason = unsupported_reason});
}

}  // namespace hadamard_plugin

HEDDLE_PLUGIN(hadamard_plugin::register_all)
