#include <fmt/format.h>

#include <heddle/core/base/error.hpp>
#include <heddle/core/layers/linear.hpp>

namespace heddle {

namespace {

bool by_outputs(Linear::Split split) {
  return split == Linear::Split::outputs || split == Linear::Split::outputs_inside;
}

void require_divisible(LayerSpec const& spec, Linear::Extents const& extents, Linear::Split split) {
  int const ranks = spec.parallel.tensor.size();
  std::int64_t const extent = by_outputs(split) ? extents.outputs : extents.inputs;
  if (split != Linear::Split::none && extent % ranks != 0) {
    throw ConfigError(fmt::format("{}: its {} {} do not divide among parallel.tensor = {} ranks", spec.name, extent,
                                  by_outputs(split) ? "outputs" : "inputs", ranks));
  }
}

/// A local weight's, its parts one below another.
std::int64_t columns_of(Shape const& weight) {
  return weight[weight.rank() - 1];
}
std::int64_t rows_of(Shape const& weight) {
  return weight.size() / columns_of(weight);
}

/// What is not split meets the stream's rows as they are.
std::vector<MeshAxis> partial_over(LayerSpec const& spec, Linear::Split split) {
  return split == Linear::Split::none ? spec.stream_axes() : std::vector<MeshAxis>();
}

/// A split of the inputs leaves the bias whole: it is added once, after the partial products are summed.
ParameterSpec weight_spec(LayerSpec const& spec, Linear::Extents const& extents, Linear::Split split) {
  bool const one_part = extents.parts == 1;
  Shape const shape =
      one_part ? Shape{extents.outputs, extents.inputs} : Shape{extents.parts, extents.outputs, extents.inputs};
  int const last = shape.rank() - 1;
  int const axis = split == Linear::Split::none ? -1 : by_outputs(split) ? last - 1 : last;
  return {spec.name + ".weight",     shape, Initializer::xavier_uniform(extents.inputs, extents.outputs), {axis},
          partial_over(spec, split), {}};
}

ParameterSpec bias_spec(LayerSpec const& spec, Linear::Extents const& extents, Linear::Split split) {
  Shape const shape = extents.parts == 1 ? Shape{extents.outputs} : Shape{extents.parts, extents.outputs};
  return {spec.name + ".bias",       shape, Initializer::zeros(), {by_outputs(split) ? shape.rank() - 1 : -1},
          partial_over(spec, split), {}};
}

}  // namespace

Linear::Linear(LayerSpec const& spec, Extents const& extents, Split split)
    : split_(split),
      region_(spec.parallel, spec.side),
      weight_(spec.parameters.declare(weight_spec(spec, extents, split))),
      bias_(spec.parameters.declare(bias_spec(spec, extents, split))),
      gemm_(spec.kernels.gemm({.dtype = spec.dtype,
                               .b_dtype = parameter_dtype(spec.dtype),
                               .output_dtype = spec.dtype,
                               .m = 64,
                               .n = rows_of(weight_.local_shape),
                               .k = columns_of(weight_.local_shape),
                               .transpose_b = true,
                               .bias = true})),
      tensor_ops_(spec.kernels.tensor_ops({spec.dtype})) {
  require_divisible(spec, extents, split);
}

Tensor Linear::matrix(Tensor const& weight) const {
  return weight.reshaped({rows_of(weight.shape()), columns_of(weight.shape())});
}

void Linear::multiply(LayerContext& context, Tensor const& x, Tensor const& y) const {
  bool const adds_bias = split_ != Split::inputs || region_.first();
  gemm_->multiply(context.execution, {.a = x,
                                      .b = matrix(weight_.value),
                                      .c = y,
                                      .bias = adds_bias ? bias_.value.reshaped({bias_.value.size()}) : Tensor(),
                                      .transpose_b = true,
                                      .b_weight = {weight_.id, weight_.version}});
}

// What a call returns is taken from the arena before the scope of what it needs on the way.

Tensor Linear::forward(LayerContext& context, Tensor const& x) const {
  std::int64_t const columns = matrix(weight_.value).dim(0);
  if (split_ == Split::inputs) {
    Tensor const y = context.arena.allocate(x.dtype(), {TensorRegion::stream_rows(context, x.dim(0)), columns});
    ArenaScope const scope(context.arena);
    Tensor const partial = region_.partial_of(context, y);
    multiply(context, x, partial);
    region_.leave(context, partial, y);
    return y;
  }
  bool const enters = split_ == Split::outputs && context.row_split.ranks > 1;
  std::int64_t const rows = enters ? region_.rows(context) : x.dim(0);
  Tensor const y = context.arena.allocate(x.dtype(), {rows, columns});
  ArenaScope const scope(context.arena);
  multiply(context, enters ? region_.enter(context, x) : x, y);
  return y;
}

Tensor Linear::backward(LayerContext& context, Tensor const& grad_y, Tensor const& x) const {
  Tensor const grad_x = context.arena.allocate(x.dtype(), x.shape());
  ArenaScope const scope(context.arena);
  if (split_ == Split::inputs) {
    Tensor const whole_grad_y = region_.enter(context, grad_y);
    add_parameter_gradients(context, whole_grad_y, x);
    grad_input(context, whole_grad_y, grad_x, false);
  } else if (split_ == Split::outputs) {
    add_parameter_gradients(context, grad_y, region_.enter(context, x));
    Tensor const partial = region_.partial_of(context, grad_x);
    grad_input(context, grad_y, partial, false);
    region_.leave(context, partial, grad_x);
  } else {
    add_parameter_gradients(context, grad_y, x);
    grad_input(context, grad_y, grad_x, false);
  }
  return grad_x;
}

void Linear::backward_add(LayerContext& context, Tensor const& grad_y, Tensor const& x, Tensor const& grad_x) const {
  ArenaScope const scope(context.arena);
  if (region_.split() && split_ == Split::outputs) {
    // Only the ranks' parts may be summed over the group, not what was in grad_x.
    tensor_ops_->add(context.execution, grad_x, backward(context, grad_y, x));
    return;
  }
  Tensor const whole_grad_y = split_ == Split::inputs ? region_.enter(context, grad_y) : grad_y;
  add_parameter_gradients(context, whole_grad_y, x);
  grad_input(context, whole_grad_y, grad_x, true);
}

void Linear::add_parameter_gradients(LayerContext& context, Tensor const& grad_y, Tensor const& x) const {
  gemm_->multiply(
      context.execution,
      {.a = grad_y, .b = x, .c = matrix(weight_.gradient), .bias = {}, .transpose_a = true, .accumulate = true});
  tensor_ops_->add_column_sums(context.execution, grad_y, bias_.gradient.reshaped({bias_.gradient.size()}));
}

void Linear::grad_input(LayerContext& context, Tensor const& grad_y, Tensor const& grad_x, bool accumulate) const {
  gemm_->multiply(context.execution, {.a = grad_y,
                                      .b = matrix(weight_.value),
                                      .c = grad_x,
                                      .bias = {},
                                      .accumulate = accumulate,
                                      .b_weight = {weight_.id, weight_.version}});
}

}  // namespace heddle
