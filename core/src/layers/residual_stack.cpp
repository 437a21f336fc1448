#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <heddle/core/layers/residual_stack.hpp>
#include <heddle/core/operations/residual_norm.hpp>
#include <heddle/core/operations/tensor_ops.hpp>

namespace heddle {

namespace {

/// The highest dropout of the stack's layers; the kernel is selected for it.
float largest_dropout(StackDescription const& description, LayerSpec const& spec) {
  double largest = description.layers.empty() ? spec.model.dropout : 0;
  for (LayerDescription const& layer : description.layers) {
    largest = std::max(largest, layer.keys->dropout);
  }
  return static_cast<float>(largest);
}

LayerSpec layer_spec(LayerSpec const& stack, LayerDescription const& layer, SublayerDescription const& sublayer,
                     std::string const& name) {
  return {.name = name,
          .side = stack.side,
          .model = *layer.keys,
          .dtype = stack.dtype,
          .kernels = stack.kernels,
          .parallel = stack.parallel,
          .parameters = stack.parameters,
          .options = sublayer.options,
          .memory_side = stack.memory_side,
          .positions = stack.positions};
}

}  // namespace

ResidualStack::ResidualStack(LayerSpec const& spec, LayerRegistry const& registry, StackDescription const& description,
                             IndexRange const& range)
    : side_(spec.side),
      memory_region_(spec.parallel, spec.memory_side.value_or(spec.side)),
      pre_(spec.model.norm == NormPlacement::pre),
      ends_side_(range.end == description.count()),
      residual_norm_(
          spec.kernels.select<ResidualNorm>({spec.dtype, spec.model.d_model, largest_dropout(description, spec)})),
      tensor_ops_(spec.kernels.select<TensorOps>({spec.dtype})) {
  auto const declare_norm = [&](std::string const& name) {
    auto const declare = [&](char const* part, Initializer const& initializer) {
      return &spec.parameters.declare({name + part, {spec.model.d_model}, initializer, {}, spec.stream_axes(), {}});
    };
    return Norm{declare(".weight", Initializer::ones()), declare(".bias", Initializer::zeros())};
  };
  for (std::int64_t index = range.begin; index < range.end; ++index) {
    LayerDescription const& layer = description.layers[static_cast<std::size_t>(index)];
    for (SublayerDescription const& sublayer : layer.sublayers) {
      std::string const name = fmt::format("{}.layers.{}.{}", spec.name, index, sublayer.name);
      auto const& uses = spec.parameters.uses();
      auto const uses_before = static_cast<std::ptrdiff_t>(uses.size());
      auto branch = registry.build(sublayer.name, layer_spec(spec, layer, sublayer, name));
      std::vector<Parameter const*> used(uses.begin() + uses_before, uses.end());
      sublayers_.push_back(
          {name, std::move(branch), declare_norm(name + ".norm"), std::move(used), layer.keys->dropout});
    }
  }
  if (pre_ && ends_side_) {
    final_norm_ = declare_norm(spec.name + ".norm");
  }
}

void ResidualStack::Norm::done(LayerContext const& context) const {
  if (weight != nullptr) {
    context.uses_done(std::array<Parameter const*, 2>{weight, bias});
  }
}

ResidualStack::Norm const& ResidualStack::norm_after(std::size_t index) const {
  if (!pre_) {
    return sublayers_[index].norm;
  }
  return index + 1 < sublayers_.size() ? sublayers_[index + 1].norm : final_norm_;
}

ResidualStack::Joint ResidualStack::join(LayerContext& context, ResidualNormCall call) const {
  Shape const shape = call.residual.shape();
  DType const dtype = call.residual.dtype();
  ResidualNormOutput output;
  if (!call.branch.empty()) {
    output.sum = context.arena.allocate(dtype, shape);
  }
  if (!call.weight.empty()) {
    output.normalized = context.arena.allocate(dtype, shape);
    output.mean = context.arena.allocate(statistics_dtype(dtype), {shape[0]});
    output.reciprocal_deviation = context.arena.allocate(statistics_dtype(dtype), {shape[0]});
  }
  residual_norm_->forward(context.execution, call, output);
  if (call.branch.empty()) {
    output.sum = call.residual;
  }
  return {std::move(call), std::move(output)};
}

HiddenStates ResidualStack::run(LayerContext& context, HiddenStates const& input, Activations& activations,
                                RunBranch const& run_branch) const {
  Tensor residual = input.hidden;
  HiddenStates stream = input;
  if (!input.memory.empty()) {
    stream.memory = memory_region_.enter(context, input.memory);
  }
  if (pre_) {
    Norm const& norm = first_norm();
    activations.first =
        join(context, {.residual = residual, .branch = {}, .weight = norm.weight->value, .bias = norm.bias->value});
    stream.hidden = activations.first.output.normalized;
  }
  for (std::size_t index = 0; index < sublayers_.size(); ++index) {
    Norm const& norm = norm_after(index);
    HiddenStates const branch = run_branch(index, stream);
    ResidualNormCall call{.residual = residual, .branch = branch.hidden, .weight = {}, .bias = {}};
    call.dropout =
        make_stream_dropout(context, sublayers_[index].dropout, sublayers_[index].name + ".residual_dropout", side_);
    if (norm.weight != nullptr) {
      call.weight = norm.weight->value;
      call.bias = norm.bias->value;
    }
    activations.joints.push_back(join(context, std::move(call)));
    ResidualNormOutput const& output = activations.joints.back().output;
    residual = pre_ ? output.sum : output.normalized;
    stream = {output.normalized.empty() ? residual : output.normalized, branch.memory};
  }
  return {stream.hidden, input.memory};
}

HiddenStates ResidualStack::forward(LayerContext& context, HiddenStates const& input, Saved& saved) const {
  Activations activations;
  activations.branches.resize(sublayers_.size());
  HiddenStates const output = run(context, input, activations, [&](std::size_t index, HiddenStates const& stream) {
    return sublayers_[index].branch->forward(context, stream, activations.branches[index]);
  });
  saved.keep(std::move(activations));
  return output;
}

HiddenStates ResidualStack::backward(LayerContext& context, HiddenStates const& grad_output, Saved const& saved) const {
  auto const& activations = saved.get<Activations>();
  if (!memory_region_.split() || grad_output.memory.empty()) {
    backward_sublayers(context, grad_output, activations);
    return grad_output;
  }
  // Each rank's heads give a part of the memory's gradient: it leaves the tensor region once for all layers.
  Tensor const grad_memory = context.arena.allocate(grad_output.memory.dtype(), grad_output.memory.shape());
  Tensor const partial = memory_region_.partial_of(context, grad_memory);
  tensor_ops_->fill(context.execution, partial, 0);
  backward_sublayers(context, {grad_output.hidden, partial}, activations);
  memory_region_.leave(context, partial, grad_memory);
  tensor_ops_->add(context.execution, grad_output.memory, grad_memory);
  return grad_output;
}

void ResidualStack::backward_sublayers(LayerContext& context, HiddenStates const& grad_stream,
                                       Activations const& activations) const {
  Tensor const grad = grad_stream.hidden;  // of the residual stream, in place
  Tensor const grad_branch = context.arena.allocate(grad.dtype(), grad.shape());
  // The gradients of a joint's normalized output and, beside the norm, of its sum; a last joint without norm has only
  // the latter.
  bool const norm_last = !pre_ || ends_side_;
  Tensor grad_normalized = norm_last ? grad : Tensor();
  Tensor grad_sum = norm_last ? Tensor() : grad;
  // A buffer for the gradient that a pre-LN branch passes to the norm before it: it must outlive the branch's scope.
  Tensor const handed = pre_ ? context.arena.allocate(grad.dtype(), grad.shape()) : Tensor();
  auto const gradients = [&](Norm const& norm, bool branch) {
    ResidualNormGradients result{grad, branch ? grad_branch : Tensor(), Tensor(), Tensor()};
    if (norm.weight != nullptr) {
      result.weight = norm.weight->gradient;
      result.bias = norm.bias->gradient;
    }
    return result;
  };
  for (std::size_t index = sublayers_.size(); index-- > 0;) {
    Joint const& joint = activations.joints[index];
    residual_norm_->backward(context.execution, joint.call, joint.output, grad_normalized, grad_sum,
                             gradients(norm_after(index), true));
    norm_after(index).done(context);
    ArenaScope const scope(context.arena);
    HiddenStates const grad_input =
        sublayers_[index].branch->backward(context, {grad_branch, grad_stream.memory}, activations.branches[index]);
    context.uses_done(sublayers_[index].used);
    if (pre_) {
      tensor_ops_->copy(context.execution, grad_input.hidden, handed);
      grad_normalized = handed;
      grad_sum = grad;
    } else {
      tensor_ops_->add(context.execution, grad, grad_input.hidden);
    }
  }
  if (pre_) {
    residual_norm_->backward(context.execution, activations.first.call, activations.first.output, grad_normalized,
                             grad_sum, gradients(first_norm(), false));
    first_norm().done(context);
  }
}

HiddenStates ResidualStack::decode(LayerContext& context, HiddenStates const& input, DecodeStep const& step,
                                   std::vector<DecodeCache>& caches) const {
  Activations activations;
  return run(context, input, activations, [&](std::size_t index, HiddenStates const& stream) {
    return sublayers_[index].branch->decode(context, stream, step, caches[index]);
  });
}

void ResidualStack::reorder(LayerContext& context, Tensor const& parents, DecodeStep const& step,
                            std::vector<DecodeCache>& caches) const {
  for (std::size_t index = 0; index < sublayers_.size(); ++index) {
    sublayers_[index].branch->reorder(context, parents, step, caches[index]);
  }
}

}  // namespace heddle
