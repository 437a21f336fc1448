#include <heddle/core/layers/linear.hpp>

namespace heddle {

namespace {

/// A split of the inputs leaves the bias whole: it is added once, after the partial products are summed.
ParameterSpec weight_spec(LayerSpec const& spec, Linear::Extents const& extents, Linear::Split split) {
  bool const one_part = extents.parts == 1;
  Shape const shape =
      one_part ? Shape{extents.outputs, extents.inputs} : Shape{extents.parts, extents.outputs, extents.inputs};
  int const last = shape.rank() - 1;
  int const axis = split == Linear::Split::none ? -1 : split == Linear::Split::outputs ? last - 1 : last;
  return {spec.name + ".weight", shape, Initializer::xavier_uniform(extents.inputs, extents.outputs), {axis}, {}};
}

ParameterSpec bias_spec(LayerSpec const& spec, Linear::Extents const& extents, Linear::Split split) {
  Shape const shape = extents.parts == 1 ? Shape{extents.outputs} : Shape{extents.parts, extents.outputs};
  return {
      spec.name + ".bias", shape, Initializer::zeros(), {split == Linear::Split::outputs ? shape.rank() - 1 : -1}, {}};
}

}  // namespace

Linear::Linear(LayerSpec const& spec, Extents const& extents, Split split)
    : weight_(spec.parameters.declare(weight_spec(spec, extents, split))),
      bias_(spec.parameters.declare(bias_spec(spec, extents, split))),
      gemm_(spec.kernels.gemm({.dtype = spec.dtype,
                               .output_dtype = spec.dtype,
                               .m = 64,
                               .n = extents.outputs,
                               .k = extents.inputs,
                               .transpose_b = true,
                               .bias = true})),
      tensor_ops_(spec.kernels.tensor_ops({spec.dtype})) {}

Tensor Linear::matrix(Tensor const& weight) const {
  std::int64_t const inputs = weight.dim(weight.shape().rank() - 1);
  return weight.reshaped({weight.size() / inputs, inputs});
}

Tensor Linear::forward(Context& context, Tensor const& x) const {
  Tensor const weight = matrix(weight_.value);
  Tensor const y = context.arena.allocate(x.dtype(), {x.dim(0), weight.dim(0)});
  gemm_->multiply(context.execution, {.a = x,
                                      .b = weight,
                                      .c = y,
                                      .bias = bias_.value.reshaped({bias_.value.size()}),
                                      .transpose_b = true,
                                      .b_weight = {weight_.id, weight_.version}});
  return y;
}

Tensor Linear::backward(Context& context, Tensor const& grad_y, Tensor const& x) const {
  add_parameter_gradients(context, grad_y, x);
  Tensor const grad_x = context.arena.allocate(x.dtype(), x.shape());
  grad_input(context, grad_y, grad_x, false);
  return grad_x;
}

void Linear::backward_add(Context& context, Tensor const& grad_y, Tensor const& x, Tensor const& grad_x) const {
  add_parameter_gradients(context, grad_y, x);
  grad_input(context, grad_y, grad_x, true);
}

void Linear::add_parameter_gradients(Context& context, Tensor const& grad_y, Tensor const& x) const {
  gemm_->multiply(
      context.execution,
      {.a = grad_y, .b = x, .c = matrix(weight_.gradient), .bias = {}, .transpose_a = true, .accumulate = true});
  tensor_ops_->add_column_sums(context.execution, grad_y, bias_.gradient.reshaped({bias_.gradient.size()}));
}

void Linear::grad_input(Context& context, Tensor const& grad_y, Tensor const& grad_x, bool accumulate) const {
  gemm_->multiply(context.execution, {.a = grad_y,
                                      .b = matrix(weight_.value),
                                      .c = grad_x,
                                      .bias = {},
                                      .accumulate = accumulate,
                                      .b_weight = {weight_.id, weight_.version}});
}

}  // namespace heddle
