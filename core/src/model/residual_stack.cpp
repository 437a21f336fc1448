#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/model/residual_stack.hpp>
#include <heddle/core/operations/tensor_ops.hpp>

namespace heddle {

namespace {

/// The highest dropout of the stack's layers; the norms' kernels are selected for it.
double largest_dropout(StackDescription const& description, LayerSpec const& spec) {
  double largest = description.layers.empty() ? spec.model.dropout : 0;
  for (LayerDescription const& layer : description.layers) {
    largest = std::max(largest, layer.keys->dropout);
  }
  return largest;
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
      pre_(spec.model.norm != NormPlacement::post),
      ends_stack_(range.end == description.count()),
      final_norm_(Norm::none(spec, largest_dropout(description, spec))),
      tensor_ops_(spec.kernels.select<TensorOps>({spec.dtype})) {
  double const dropout = largest_dropout(description, spec);
  for (std::int64_t index = range.begin; index < range.end; ++index) {
    LayerDescription const& layer = description.layers[static_cast<std::size_t>(index)];
    for (SublayerDescription const& sublayer : layer.sublayers) {
      std::string const name = fmt::format("{}.layers.{}.{}", spec.name, index, sublayer.name);
      auto const& uses = spec.parameters.uses();
      auto const uses_before = static_cast<std::ptrdiff_t>(uses.size());
      LayerSpec const own_spec = layer_spec(spec, layer, sublayer, name);
      auto branch = registry.build(sublayer.name, own_spec);
      std::vector<Parameter const*> used(uses.begin() + uses_before, uses.end());
      Norm norm = Norm::of_stream(own_spec, name + ".norm", dropout);
      std::optional<Norm> output_norm;
      if (spec.model.norm == NormPlacement::both) {
        output_norm = Norm::of_stream(own_spec, name + ".output_norm");
      }
      sublayers_.push_back({.name = name,
                            .branch = std::move(branch),
                            .norm = std::move(norm),
                            .output_norm = std::move(output_norm),
                            .used = std::move(used),
                            .dropout = layer.keys->dropout});
    }
  }
  if (pre_ && ends_stack_) {
    final_norm_ = Norm::of_stream(spec, spec.name + ".norm", dropout);
  }
}

Norm const& ResidualStack::norm_after(std::size_t index) const {
  if (!pre_) {
    return sublayers_[index].norm;
  }
  return index + 1 < sublayers_.size() ? sublayers_[index + 1].norm : final_norm_;
}

HiddenStates ResidualStack::run(LayerContext& context, HiddenStates const& input, Activations& activations,
                                RunBranch const& run_branch) const {
  Tensor residual = input.hidden;
  HiddenStates stream = input;
  if (!input.memory.empty()) {
    stream.memory = memory_region_.enter(context, input.memory);
  }
  if (pre_) {
    activations.first = first_norm().forward(context, {residual});
    stream.hidden = activations.first.output.normalized;
  }
  for (std::size_t index = 0; index < sublayers_.size(); ++index) {
    Sublayer const& sublayer = sublayers_[index];
    HiddenStates branch = run_branch(index, stream);
    if (sublayer.output_norm) {
      activations.output_norms.push_back(sublayer.output_norm->forward(context, {branch.hidden}));
      branch.hidden = activations.output_norms.back().output.normalized;
    }
    Dropout const dropout = make_stream_dropout(context, sublayer.dropout, sublayer.name + ".residual_dropout", side_);
    activations.joints.push_back(norm_after(index).forward(context, {residual, branch.hidden, dropout}));
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
  bool const norm_last = !pre_ || ends_stack_;
  Tensor grad_normalized = norm_last ? grad : Tensor();
  Tensor grad_sum = norm_last ? Tensor() : grad;
  // A buffer for the gradient that a branch passes to the norm before it: it must outlive the branch's scope.
  Tensor const handed = pre_ ? context.arena.allocate(grad.dtype(), grad.shape()) : Tensor();
  for (std::size_t index = sublayers_.size(); index-- > 0;) {
    Sublayer const& sublayer = sublayers_[index];
    norm_after(index).backward(
        context, activations.joints[index],
        {.normalized = grad_normalized, .sum = grad_sum, .residual = grad, .branch = grad_branch});
    norm_after(index).done(context);
    if (sublayer.output_norm) {
      sublayer.output_norm->backward(context, activations.output_norms[index],
                                     {.normalized = grad_branch, .residual = grad_branch});
      sublayer.output_norm->done(context);
    }
    ArenaScope const scope(context.arena);
    HiddenStates const grad_input =
        sublayer.branch->backward(context, {grad_branch, grad_stream.memory}, activations.branches[index]);
    context.uses_done(sublayer.used);
    if (pre_) {
      tensor_ops_->copy(context.execution, grad_input.hidden, handed);
      grad_normalized = handed;
      grad_sum = grad;
    } else {
      tensor_ops_->add(context.execution, grad, grad_input.hidden);
    }
  }
  if (pre_) {
    first_norm().backward(context, activations.first,
                          {.normalized = grad_normalized, .sum = grad_sum, .residual = grad});
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
