#include <heddle/core/base/activation_functions.hpp>
#include <heddle/core/layers/output_transform.hpp>

namespace heddle {

OutputTransform::OutputTransform(LayerSpec const& spec)
    : function_(function_of_activation(spec.model.activation)),
      projection_(spec.named("output.transform"), {spec.model.d_model, spec.model.d_model}, Linear::Split::none),
      activation_(spec.kernels.select<Activation>({spec.dtype, function_})),
      norm_(Norm::of_stream(spec, "output.norm")),
      tensor_ops_(spec.kernels.select<TensorOps>({spec.dtype})) {}

Tensor OutputTransform::forward(LayerContext& context, Tensor const& x, Activations& activations) const {
  activations.input = x;
  activations.projected = projection_.forward(context, x);
  activations.activated = context.arena.allocate(x.dtype(), x.shape());
  activation_->forward(context.execution, {function_, activations.projected}, activations.activated);
  activations.norm = norm_.forward(context, {activations.activated});
  return activations.norm.output.normalized;
}

void OutputTransform::backward(LayerContext& context, Tensor const& grad, Activations const& activations) const {
  ArenaScope const scope(context.arena);
  norm_.backward(context, activations.norm, {.normalized = grad, .residual = grad});
  ActivationCall call{function_, activations.projected};
  call.output = activations.activated;
  activation_->backward(context.execution, call, grad, {.input = grad});
  tensor_ops_->copy(context.execution, projection_.backward(context, grad, activations.input), grad);
}

}  // namespace heddle
