#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/random.hpp>
#include <heddle/core/model/residual_stack.hpp>
#include <ranges>

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

}  // namespace

ResidualStack::ResidualStack(LayerSpec const& spec, LayerRegistry const& registry, StackDescription const& description,
                             IndexRange const& range)
    : side_(spec.side),
      encoder_region_(spec.parallel, spec.encoder_side.value_or(spec.side)),
      pre_(spec.model.norm != NormPlacement::post),
      before_(spec.model.norm == NormPlacement::pre || spec.model.norm == NormPlacement::both),
      ends_stack_(range.end == description.count()),
      final_norm_(Norm::none(spec, largest_dropout(description, spec))),
      tensor_ops_(spec.kernels.select<TensorOps>({spec.dtype})) {
  double const dropout = largest_dropout(description, spec);
  std::vector<IndexRange> uses;  // of parameters, by layer
  for (std::int64_t index = range.begin; index < range.end; ++index) {
    LayerDescription const& layer = description.layers[static_cast<std::size_t>(index)];
    std::int64_t const uses_before = std::ssize(spec.parameters.uses());
    if (layer.owner == index) {
      build_layer(spec, registry, layer, index, dropout);
    } else if (layer.owner >= range.begin) {
      auto const owner = static_cast<std::size_t>(layer.owner - range.begin);
      repeat_layer(spec, layers_[owner], index);
      for (std::int64_t use = uses[owner].begin; use < uses[owner].end; ++use) {
        spec.parameters.add_use(*spec.parameters.uses()[static_cast<std::size_t>(use)]);
      }
    } else {
      throw Error("layer {} of the {} is tied to layer {}, which another part of the model has", index + 1, spec.name,
                  layer.owner + 1);
    }
    uses.push_back({uses_before, std::ssize(spec.parameters.uses())});
  }
  if (pre_ && ends_stack_) {
    final_norm_ = Norm::of_stream(spec, spec.name + ".norm", dropout);
  }
}

void ResidualStack::build_layer(LayerSpec const& spec, LayerRegistry const& registry, LayerDescription const& layer,
                                std::int64_t index, double dropout) {
  bool const whole = layer.keys->recompute == Recompute::layer;
  layers_.push_back({sublayers_.size(), sublayers_.size() + layer.sublayers.size(), whole});
  for (SublayerDescription const& sublayer : layer.sublayers) {
    std::string const& path = sublayer.path;
    std::string const name = fmt::format("{}.layers.{}.{}", spec.name, index, sublayer.name);
    std::size_t const uses_before = spec.parameters.uses().size();
    LayerSpec own_spec = spec.with_keys(path, *layer.keys);
    own_spec.options = sublayer.options;
    auto branch = registry.build(sublayer.name, own_spec);
    std::vector<Parameter const*> used = spec.parameters.uses_since(uses_before);
    ParameterUnit& unit = spec.parameters.add_unit(used);
    Norm norm = pre_ && !before_ ? Norm::none(own_spec, dropout) : Norm::of_stream(own_spec, path + ".norm", dropout);
    std::optional<Norm> output_norm;
    if (spec.model.norm == NormPlacement::both || spec.model.norm == NormPlacement::output) {
      output_norm = Norm::of_stream(own_spec, path + ".output_norm");
    }
    sublayers_.push_back({.registered = sublayer.name,
                          .name = name,
                          .dropout_name = name + ".residual_dropout",
                          .branch = std::move(branch),
                          .norm = std::move(norm),
                          .output_norm = std::move(output_norm),
                          .used = std::move(used),
                          .unit = &unit,
                          .dropout = layer.keys->dropout,
                          .recomputed = !whole && layer.recomputes(sublayer)});
  }
}

void ResidualStack::repeat_layer(LayerSpec const& spec, LayerRange owner, std::int64_t index) {
  layers_.push_back({sublayers_.size(), sublayers_.size() + owner.end - owner.begin, owner.recomputed});
  for (std::size_t each = owner.begin; each < owner.end; ++each) {
    Sublayer again = sublayers_[each];
    again.name = fmt::format("{}.layers.{}.{}", spec.name, index, again.registered);
    again.dropout_name = again.name + ".residual_dropout";
    again.repeated = true;
    sublayers_.push_back(std::move(again));
  }
}

LayerContext ResidualStack::context_of(LayerContext const& context, Sublayer const& sublayer) const {
  LayerContext own = context;
  if (sublayer.repeated) {
    own.seed = random_key(context.seed, sublayer.name);
  }
  return own;
}

Norm const& ResidualStack::norm_after(std::size_t index) const {
  if (!pre_) {
    return sublayers_[index].norm;
  }
  return index + 1 < sublayers_.size() ? sublayers_[index + 1].norm : final_norm_;
}

ResidualStack::Stream ResidualStack::begin(LayerContext& context, HiddenStates const& input,
                                           Norm::Activations& first) const {
  Stream stream{input.hidden, input};
  if (!input.encoder_output.empty()) {
    stream.states.encoder_output = encoder_region_.enter(context, input.encoder_output);
  }
  if (pre_ && first_norm().present()) {
    first = first_norm().forward(context, {stream.residual});
    stream.states.hidden = first.output.normalized;
  }
  return stream;
}

ResidualStack::Stream ResidualStack::join(LayerContext& context, std::size_t index, Stream const& stream,
                                          HiddenStates branch, SublayerActivations& activations) const {
  Sublayer const& sublayer = sublayers_[index];
  if (sublayer.output_norm) {
    activations.output_norm = sublayer.output_norm->forward(context, {branch.hidden});
    branch.hidden = activations.output_norm.output.normalized;
  }
  Dropout const dropout = make_stream_dropout(context, sublayer.dropout, sublayer.dropout_name, side_);
  activations.joint = norm_after(index).forward(context, {stream.residual, branch.hidden, dropout});
  ResidualNormOutput const& output = activations.joint.output;
  Tensor const residual = pre_ ? output.sum : output.normalized;
  return {residual, {output.normalized.empty() ? residual : output.normalized, branch.encoder_output}};
}

HiddenStates ResidualStack::run_branch(LayerContext& context, Sublayer const& sublayer, HiddenStates const& input,
                                       SublayerActivations& activations) const {
  LayerContext own = context_of(context, sublayer);
  if (!sublayer.recomputed) {
    return sublayer.branch->forward(own, input, activations.branch);
  }
  activations.input = input;
  Tensor const output = context.arena.allocate(input.hidden.dtype(), input.hidden.shape());
  ArenaScope const scope(context.arena);
  Saved dropped;
  tensor_ops_->copy(context.execution, sublayer.branch->forward(own, input, dropped).hidden, output);
  return {output, input.encoder_output};
}

void ResidualStack::run_layer(LayerContext& context, LayerRange const& layer, Stream& stream,
                              LayerActivations& activations) const {
  activations.sublayers.resize(layer.end - layer.begin);
  for (std::size_t index = layer.begin; index < layer.end; ++index) {
    WorkScope const work(observer_, {WorkKind::layer, sublayers_[index].name});
    SublayerActivations& own = activations.sublayers[index - layer.begin];
    context.begin_use(*sublayers_[index].unit, false);
    HiddenStates const branch = run_branch(context, sublayers_[index], stream.states, own);
    context.end_use(*sublayers_[index].unit);
    stream = join(context, index, stream, branch, own);
  }
}

void ResidualStack::forward_checkpointed(LayerContext& context, LayerRange const& layer, Stream& stream,
                                         LayerActivations& activations) const {
  activations.input = stream;
  auto const allocate = [&] { return context.arena.allocate(stream.residual.dtype(), stream.residual.shape()); };
  Tensor const residual = allocate();
  // Except in post-LN, the residual and the norm of it are two tensors if a norm follows.
  Tensor const hidden = pre_ && norm_after(layer.end - 1).present() ? allocate() : residual;
  ArenaScope const scope(context.arena);
  LayerActivations dropped;
  run_layer(context, layer, stream, dropped);
  tensor_ops_->copy(context.execution, stream.residual, residual);
  if (hidden.raw() != residual.raw()) {
    tensor_ops_->copy(context.execution, stream.states.hidden, hidden);
  }
  stream = {residual, {hidden, stream.states.encoder_output}};
}

HiddenStates ResidualStack::forward(LayerContext& context, HiddenStates const& input, Saved& saved) const {
  auto& activations = saved.renew<Activations>();
  activations.layers.resize(layers_.size());
  Stream stream = begin(context, input, activations.first);
  for (std::size_t index = 0; index < layers_.size(); ++index) {
    LayerRange const& layer = layers_[index];
    if (layer.recomputed) {
      forward_checkpointed(context, layer, stream, activations.layers[index]);
    } else {
      run_layer(context, layer, stream, activations.layers[index]);
    }
  }
  return {stream.states.hidden, input.encoder_output};
}

HiddenStates ResidualStack::backward(LayerContext& context, HiddenStates const& grad_output, Saved const& saved) const {
  auto const& activations = saved.get<Activations>();
  if (!encoder_region_.split() || grad_output.encoder_output.empty()) {
    backward_layers(context, grad_output, activations);
    return grad_output;
  }
  // Each rank's heads give a part of the encoder output's gradient: it leaves the tensor region once for all layers.
  Tensor const grad_encoder_output =
      context.arena.allocate(grad_output.encoder_output.dtype(), grad_output.encoder_output.shape());
  Tensor const partial = encoder_region_.partial_of(context, grad_encoder_output);
  tensor_ops_->fill(context.execution, partial, 0);
  backward_layers(context, {grad_output.hidden, partial}, activations);
  encoder_region_.leave(context, partial, grad_encoder_output);
  tensor_ops_->add(context.execution, grad_output.encoder_output, grad_encoder_output);
  return grad_output;
}

void ResidualStack::backward_layers(LayerContext& context, HiddenStates const& grad_stream,
                                    Activations const& activations) const {
  Tensor const& grad = grad_stream.hidden;
  auto const allocate = [&] { return context.arena.allocate(grad.dtype(), grad.shape()); };
  // A last joint without norm has only a sum.
  bool const norm_last = !pre_ || ends_stack_;
  StreamGradients gradients{.residual = grad,
                            .branch = allocate(),
                            .grad_input = before_ ? allocate() : Tensor(),
                            .normalized = norm_last ? grad : Tensor(),
                            .sum = norm_last ? Tensor() : grad,
                            .encoder_output = grad_stream.encoder_output};
  for (std::size_t index = layers_.size(); index-- > 0;) {
    LayerRange const& layer = layers_[index];
    LayerActivations const& kept = activations.layers[index];
    if (!layer.recomputed) {
      backward_layer(context, layer, gradients, kept);
      continue;
    }
    ArenaScope const scope(context.arena);
    LayerActivations again;
    Stream stream = kept.input;
    run_layer(context, layer, stream, again);
    backward_layer(context, layer, gradients, again);
  }
  if (pre_ && first_norm().present()) {
    first_norm().backward(context, activations.first,
                          {.normalized = gradients.normalized, .sum = gradients.sum, .residual = grad});
    first_norm().done(context);
  }
}

void ResidualStack::backward_layer(LayerContext& context, LayerRange const& layer, StreamGradients& grad,
                                   LayerActivations const& activations) const {
  for (std::size_t index = layer.end; index-- > layer.begin;) {
    backward_sublayer(context, index, grad, activations.sublayers[index - layer.begin]);
  }
}

void ResidualStack::backward_sublayer(LayerContext& context, std::size_t index, StreamGradients& grad,
                                      SublayerActivations const& activations) const {
  Sublayer const& sublayer = sublayers_[index];
  WorkScope const work(observer_, {WorkKind::layer, sublayer.name, Direction::backward});
  norm_after(index).backward(
      context, activations.joint,
      {.normalized = grad.normalized, .sum = grad.sum, .residual = grad.residual, .branch = grad.branch});
  norm_after(index).done(context);
  if (sublayer.output_norm) {
    sublayer.output_norm->backward(context, activations.output_norm,
                                   {.normalized = grad.branch, .residual = grad.branch});
    sublayer.output_norm->done(context);
  }
  ArenaScope const scope(context.arena);
  Saved again;
  LayerContext own = context_of(context, sublayer);
  context.begin_use(*sublayer.unit, true);
  if (sublayer.recomputed) {
    sublayer.branch->forward(own, activations.input, again);
  }
  HiddenStates const grad_input = sublayer.branch->backward(own, {grad.branch, grad.encoder_output},
                                                            sublayer.recomputed ? again : activations.branch);
  context.end_use(*sublayer.unit);
  context.uses_done(sublayer.used);
  if (before_) {
    tensor_ops_->copy(context.execution, grad_input.hidden, grad.grad_input);
    grad.normalized = grad.grad_input;
    grad.sum = grad.residual;
    return;
  }
  tensor_ops_->add(context.execution, grad.residual, grad_input.hidden);
  if (pre_) {
    grad.normalized = Tensor();
    grad.sum = grad.residual;
  }
}

template <class Use>
void ResidualStack::for_each_use(Direction direction, Use const& use) const {
  auto const forward = [&](LayerRange const& layer) {
    for (std::size_t index = layer.begin; index < layer.end; ++index) {
      use(index, Direction::forward);
    }
  };
  if (direction == Direction::forward) {
    std::ranges::for_each(layers_, forward);
    return;
  }
  for (LayerRange const& layer : layers_ | std::views::reverse) {
    if (layer.recomputed) {
      forward(layer);
    }
    for (std::size_t index = layer.end; index-- > layer.begin;) {
      use(index, Direction::backward);
    }
  }
}

void ResidualStack::attend(LayerContext& context, Direction direction, Saved& saved) const {
  auto& kept = saved.renew<std::vector<Saved>>();
  kept.resize(sublayers_.size());
  auto const attend_sublayer = [&](std::size_t index, Direction of_sublayer) {
    Sublayer const& sublayer = sublayers_[index];
    bool const backward = of_sublayer == Direction::backward;
    context.begin_use(*sublayer.unit, backward);
    if (backward && sublayer.recomputed) {
      sublayer.branch->attend(context, Direction::forward, kept[index]);
    }
    sublayer.branch->attend(context, of_sublayer, kept[index]);
    context.end_use(*sublayer.unit);
  };
  for_each_use(direction, attend_sublayer);
}

void ResidualStack::add_uses(Direction direction, std::vector<UnitUse>& uses) const {
  for_each_use(direction, [&](std::size_t index, Direction of_sublayer) {
    if (ParameterUnit& unit = *sublayers_[index].unit; !unit.sections.empty()) {
      uses.push_back({&unit, of_sublayer == Direction::backward});
    }
  });
}

template <class RunBranch>
HiddenStates ResidualStack::infer(LayerContext& context, HiddenStates const& input, RunBranch const& run) const {
  Norm::Activations first;
  Stream stream = begin(context, input, first);
  auto const allocate = [&] { return context.arena.allocate(input.hidden.dtype(), stream.residual.shape()); };
  Tensor const residual = allocate();
  Tensor const hidden = pre_ ? allocate() : residual;
  for (std::size_t index = 0; index < sublayers_.size(); ++index) {
    WorkScope const work(observer_, {WorkKind::layer, sublayers_[index].name});
    ArenaScope const scope(context.arena);
    SublayerActivations activations;
    Stream const result = join(context, index, stream, run(index, stream.states, activations.branch), activations);
    bool const normalized = result.states.hidden.raw() != result.residual.raw();
    tensor_ops_->copy(context.execution, result.residual, residual);
    if (normalized) {
      tensor_ops_->copy(context.execution, result.states.hidden, hidden);
    }
    stream = {residual, {normalized ? hidden : residual, result.states.encoder_output}};
  }
  return {stream.states.hidden, input.encoder_output};
}

HiddenStates ResidualStack::encode(LayerContext& context, HiddenStates const& input) const {
  return infer(context, input, [&](std::size_t index, HiddenStates const& states, Saved& saved) {
    return sublayers_[index].branch->forward(context, states, saved);
  });
}

HiddenStates ResidualStack::decode(LayerContext& context, HiddenStates const& input, DecodeStep const& step,
                                   std::vector<DecodeCache>& caches) const {
  return infer(context, input, [&](std::size_t index, HiddenStates const& states, Saved&) {
    return sublayers_[index].branch->decode(context, states, step, caches[index]);
  });
}

}  // namespace heddle
