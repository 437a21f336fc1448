#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/index_range.hpp>
#include <heddle/core/layers/linear.hpp>
#include <heddle/core/parameters/update_rules.hpp>

namespace heddle {

namespace {

bool by_outputs(Linear::Split split) {
  return split == Linear::Split::outputs || split == Linear::Split::outputs_inside;
}

void require_divisible(LayerSpec const& spec, std::int64_t extent, Linear::Split split) {
  int const ranks = spec.parallel.tensor.size();
  if (split != Linear::Split::none && extent % ranks != 0) {
    throw ConfigError("{}: its {} {} cannot be divided among parallel.tensor = {} ranks", spec.name, extent,
                      by_outputs(split) ? "outputs" : "inputs", ranks);
  }
}

/// Multiply-adds of a product between two calls of LayerContext::progress: some milliseconds on a core.
constexpr std::int64_t products_at_once = 1'000'000'000;
/// Rows of a product's part are a multiple of this, so that kernels' blocks stay whole.
constexpr std::int64_t rows_of_parts = 64;

/// Calls `multiply(rows)` for consecutive parts of a product's rows, of `row_products` multiply-adds each, so that
/// gradients which other ranks wait for move on in between. There is one part where none are on their way, and on a
/// device, which does not keep the host waiting.
template <class Multiply>
void in_parts(LayerContext const& context, std::int64_t rows, std::int64_t row_products, Multiply const& multiply) {
  bool const whole = context.gradients == nullptr || kernel_memory_space() != MemorySpace::host;
  std::int64_t const fitting = products_at_once / std::max<std::int64_t>(row_products, 1) / rows_of_parts;
  std::int64_t const max = whole ? rows : std::max<std::int64_t>(fitting, 1) * rows_of_parts;
  IndexRange part;
  do {
    part = {part.end, std::min(rows, part.end + max)};
    multiply(part);
    context.progress();
  } while (part.end < rows);
}

/// A matrix under its full name, and its first row in the matrix whose initial values it shares.
struct NamedPart {
  std::string name;
  std::string start_name;
  std::int64_t outputs = 0;
  std::int64_t first_row = 0;
};

std::vector<NamedPart> named_parts(LayerSpec const& spec, std::vector<Linear::Part> const& parts) {
  if (parts.size() == 1 && parts.front().name.empty()) {
    return {{spec.name, spec.name, parts.front().outputs, 0}};
  }
  std::string joined = spec.name + ".";
  for (Linear::Part const& part : parts) {
    joined += part.name;
  }
  std::vector<NamedPart> named;
  std::int64_t row = 0;
  for (Linear::Part const& part : parts) {
    named.push_back({spec.name + "." + part.name, joined, part.outputs, row});
    row += part.outputs;
  }
  return named;
}

/// A parameter that is not split is applied to the rows of the stream as they are.
MeshAxes partial_over(LayerSpec const& spec, Linear::Split split) {
  return split == Linear::Split::none ? spec.stream_axes() : MeshAxes();
}

int split_axis(Linear::Split split) {
  return split == Linear::Split::none ? -1 : by_outputs(split) ? 0 : 1;
}

ParameterBlock& declare_weights(LayerSpec const& spec, std::int64_t inputs, std::vector<Linear::Part> const& parts,
                                Linear::Split split) {
  std::vector<ParameterSpec> specs;
  std::vector<NamedPart> const named = named_parts(spec, parts);
  bool const rounded = spec.model.frozen.rounded && std::ranges::all_of(named, [&](NamedPart const& part) {
                         return is_frozen(spec.model.frozen, part.name + ".weight");
                       });
  for (NamedPart const& part : named) {
    require_divisible(spec, by_outputs(split) ? part.outputs : inputs, split);
    specs.push_back(
        {.name = part.name + ".weight",
         .placement = {{part.outputs, inputs}, Placement::sharded_along(split_axis(split)), partial_over(spec, split)},
         .initializer = Initializer::xavier_uniform(inputs, part.outputs),
         .initializer_key = part.start_name + ".weight",
         .initializer_offset = part.first_row * inputs,
         .rounded = rounded,
         .matrix = true,
         .used_rounded = true});
  }
  return spec.parameters.declare_block(std::move(specs));
}

/// Null where the layer has no biases. If the inputs are split, the bias is whole: it is added once, after the partial
/// products are summed.
ParameterBlock* declare_biases(LayerSpec const& spec, std::vector<Linear::Part> const& parts, Linear::Split split) {
  if (!spec.model.biases) {
    return nullptr;
  }
  std::vector<ParameterSpec> specs;
  for (NamedPart const& part : named_parts(spec, parts)) {
    specs.push_back(
        {.name = part.name + ".bias",
         .placement = {{part.outputs}, Placement::sharded_along(by_outputs(split) ? 0 : -1), partial_over(spec, split)},
         .initializer = Initializer::zeros(),
         .initializer_key = part.start_name + ".bias",
         .initializer_offset = part.first_row});
  }
  return &spec.parameters.declare_block(std::move(specs));
}

std::optional<LowRank> declare_adapters(LayerSpec const& spec, std::vector<Linear::Part> const& parts,
                                        ParameterBlock const& weights, Linear::Split split) {
  std::vector<LowRank::Part> adapted;
  std::int64_t column = 0;
  std::int64_t inputs = 0;
  for (NamedPart const& part : named_parts(spec, parts)) {
    Parameter const& weight = *weights.members[adapted.size()];
    adapted.push_back({part.name, part.outputs, column, weight.local_shape[0]});
    column += weight.local_shape[0];
    inputs = weight.global_shape()[1];
  }
  return LowRank::declare(spec, {inputs, split_axis(split), partial_over(spec, split)}, adapted);
}

}  // namespace

Linear::Linear(LayerSpec const& spec, std::int64_t inputs, std::vector<Part> const& parts, Split split)
    : split_(split),
      region_(spec.parallel, spec.side),
      weight_(declare_weights(spec, inputs, parts, split)),
      bias_(declare_biases(spec, parts, split)),
      inputs_(weight_.members.front()->local_shape[1]),
      outputs_(weight_.size() / inputs_),
      adapters_(declare_adapters(spec, parts, weight_, split)),
      tensor_ops_(spec.kernels.select<TensorOps>({spec.dtype})) {
  GemmProblem problem{.dtype = spec.dtype,
                      .b_dtype = weight_.members.front()->value_dtype(spec.dtype),
                      .output_dtype = spec.dtype,
                      .m = 64,
                      .n = outputs_,
                      .k = inputs_,
                      .transpose_b = true,
                      .bias = bias_ != nullptr};
  gemm_ = spec.kernels.select<Gemm>(problem);
  if (spec.parameters.divides_units() && spec.dtype == DType::bfloat16) {
    problem.b_dtype = DType::bfloat16;
    gathered_gemm_ = spec.kernels.select<Gemm>(problem);
  }
}

std::int32_t Linear::first_output() const {
  return static_cast<std::int32_t>(weight_.members.front()->global_offset(0));
}

void Linear::multiply(LayerContext& context, Tensor const& x, Tensor const& y) const {
  bool const adds_bias = bias_ != nullptr && (split_ != Split::inputs || region_.first());
  weight_gemm().multiply(context.execution, {.a = x,
                                             .b = matrix(weight_.value),
                                             .c = y,
                                             .bias = adds_bias ? bias_->value : Tensor(),
                                             .transpose_b = true,
                                             .b_weight = weight_.weight_version()});
  if (adapters_) {
    adapters_->forward(context, x, y);
  }
}

// Each call takes its result from the arena before it opens the scope of its temporaries.

Tensor Linear::forward(LayerContext& context, Tensor const& x) const {
  if (split_ == Split::inputs) {
    Tensor const y = context.arena.allocate(x.dtype(), {TensorRegion::stream_rows(context, x.dim(0)), outputs_});
    ArenaScope const scope(context.arena);
    Tensor const partial = region_.partial_of(context, y);
    multiply(context, x, partial);
    region_.leave(context, partial, y);
    return y;
  }
  bool const enters = split_ == Split::outputs && context.row_split.ranks > 1;
  std::int64_t const rows = enters ? region_.rows(context) : x.dim(0);
  Tensor const y = context.arena.allocate(x.dtype(), {rows, outputs_});
  ArenaScope const scope(context.arena);
  multiply(context, enters ? region_.enter(context, x) : x, y);
  return y;
}

Tensor Linear::backward(LayerContext& context, Tensor const& grad_y, Tensor const& x) const {
  Tensor const grad_x = context.arena.allocate(x.dtype(), x.shape());
  ArenaScope const scope(context.arena);
  if (split_ == Split::inputs) {
    Tensor const whole_grad_y = region_.enter(context, grad_y);
    gradients(context, whole_grad_y, x, grad_x, false);
  } else if (split_ == Split::outputs) {
    Tensor const whole_x = region_.enter(context, x);
    Tensor const partial = region_.partial_of(context, grad_x);
    gradients(context, grad_y, whole_x, partial, false);
    region_.leave(context, partial, grad_x);
  } else {
    gradients(context, grad_y, x, grad_x, false);
  }
  return grad_x;
}

void Linear::backward_add(LayerContext& context, Tensor const& grad_y, Tensor const& x, Tensor const& grad_x) const {
  ArenaScope const scope(context.arena);
  if (region_.split() && split_ == Split::outputs) {
    // Only the ranks' parts may be summed over the group, not the earlier content of grad_x.
    tensor_ops_->add(context.execution, grad_x, backward(context, grad_y, x));
    return;
  }
  Tensor const whole_grad_y = split_ == Split::inputs ? region_.enter(context, grad_y) : grad_y;
  gradients(context, whole_grad_y, x, grad_x, true);
}

void Linear::gradients(LayerContext& context, Tensor const& grad_y, Tensor const& x, Tensor const& grad_x,
                       bool accumulate) const {
  if (context.deferred == nullptr) {
    add_parameter_gradients(context, grad_y, x);
  } else if (!weight_.gradient.empty() || (bias_ != nullptr && !bias_->gradient.empty())) {
    context.deferred->add(context, *this, grad_y, x);
  }
  grad_input(context, grad_y, grad_x, accumulate);
  if (adapters_) {
    adapters_->backward(context, grad_y, x, grad_x);
  }
}

void Linear::add_parameter_gradients(LayerContext& context, Tensor const& grad_y, Tensor const& x) const {
  if (!weight_.gradient.empty()) {
    gemm_->multiply(
        context.execution,
        {.a = grad_y, .b = x, .c = matrix(weight_.gradient), .bias = {}, .transpose_a = true, .accumulate = true});
  }
  if (bias_ != nullptr && !bias_->gradient.empty()) {
    tensor_ops_->add_column_sums(context.execution, grad_y, bias_->gradient);
  }
  context.progress();
}

void Linear::grad_input(LayerContext& context, Tensor const& grad_y, Tensor const& grad_x, bool accumulate) const {
  Tensor const weight = matrix(weight_.value);
  in_parts(context, grad_x.dim(0), grad_y.dim(1) * grad_x.dim(1), [&](IndexRange const& part) {
    weight_gemm().multiply(context.execution, {.a = grad_y.rows(part.begin, part.count()),
                                               .b = weight,
                                               .c = grad_x.rows(part.begin, part.count()),
                                               .bias = {},
                                               .accumulate = accumulate,
                                               .b_weight = weight_.weight_version()});
  });
}

void DeferredGradients::add(LayerContext const& context, Linear const& linear, Tensor const& grad_y, Tensor const& x) {
  // Gradients are always copied: the memory of one is used for the sum with another.
  bool const stays = arena_.contains(x) || input_.contains(x);
  entries_.push_back({&linear, copied(context, grad_y), stays ? x : copied(context, x), {}});
}

void DeferredGradients::uses_done(std::span<Parameter const* const> parameters) {
  entries_.push_back({nullptr, {}, {}, {parameters.begin(), parameters.end()}});
}

Tensor DeferredGradients::copied(LayerContext const& context, Tensor const& tensor) const {
  Tensor const copy = arena_.allocate(tensor.dtype(), tensor.shape());
  tensor_ops_->copy(context.execution, tensor, copy);
  return copy;
}

void DeferredGradients::compute(LayerContext& context, std::function<void()> const& between) {
  for (Entry const& entry : entries_) {
    if (entry.linear != nullptr) {
      entry.linear->add_parameter_gradients(context, entry.grad_y, entry.x);
      between();
    }
    context.uses_done(entry.done);
  }
  entries_.clear();
}

}  // namespace heddle
