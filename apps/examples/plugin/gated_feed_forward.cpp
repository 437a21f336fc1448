#include "gated_feed_forward.hpp"

namespace swish {

using heddle::HiddenStates;
using heddle::LayerContext;
using heddle::Saved;
using heddle::Tensor;

GatedFeedForward::GatedFeedForward(heddle::LayerSpec const& spec)
    : name_(spec.name),
      side_(spec.side),
      function_(spec.model.activation),
      dropout_(spec.model.activation_dropout),
      gate_(spec.named(spec.name + ".gate"), {spec.model.d_model, spec.model.d_ff}, heddle::Linear::Split::outputs),
      up_(spec.named(spec.name + ".up"), {spec.model.d_model, spec.model.d_ff}, heddle::Linear::Split::outputs),
      down_(spec.named(spec.name + ".down"), {spec.model.d_ff, spec.model.d_model}, heddle::Linear::Split::inputs),
      activation_(spec.kernels.select<heddle::Activation>({spec.dtype, spec.model.activation})),
      product_(spec.kernels.select<Product>({spec.dtype})) {}

heddle::ActivationCall GatedFeedForward::activation_call(LayerContext const& context, Tensor const& gate) const {
  heddle::ActivationCall call{function_, gate, heddle::make_dropout(context, dropout_, name_ + ".dropout", side_)};
  call.dropout.first_column = gate_.first_output();  // columns are split over the tensor group
  return call;
}

HiddenStates GatedFeedForward::forward(LayerContext& context, HiddenStates const& input, Saved& saved) const {
  Tensor const gate = gate_.forward(context, input.hidden);
  Tensor const activated = context.arena.allocate(gate.dtype(), gate.shape());
  activation_->forward(context.execution, activation_call(context, gate), activated);
  Tensor const up = up_.forward(context, input.hidden);
  Tensor const product = context.arena.allocate(up.dtype(), up.shape());
  product_->forward(context.execution, activated, up, product);
  saved.keep(Activations{input.hidden, gate, activated, up, product});
  return {down_.forward(context, product), input.memory};
}

HiddenStates GatedFeedForward::backward(LayerContext& context, HiddenStates const& grad_output,
                                        Saved const& saved) const {
  auto const& [input, gate, activated, up, product] = saved.get<Activations>();
  Tensor const grad_product = down_.backward(context, grad_output.hidden, product);
  Tensor const grad_up = context.arena.allocate(up.dtype(), up.shape());
  Tensor const& grad_gate = grad_product;
  product_->backward(context.execution, activated, up, grad_product, grad_gate, grad_up);
  activation_->backward(context.execution, activation_call(context, gate), grad_gate, {grad_gate});
  Tensor const grad_input = up_.backward(context, grad_up, input);
  gate_.backward_add(context, grad_gate, input, grad_input);
  return {grad_input, grad_output.memory};
}

}  // namespace swish
