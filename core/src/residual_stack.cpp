#include <fmt/format.h>

#include <heddle/core/layers/residual_stack.hpp>

namespace heddle {

ResidualStack::ResidualStack(LayerSpec const& spec, LayerRegistry const& registry, std::int64_t layers,
                             std::vector<std::string> const& sublayers)
    : side_(spec.side),
      pre_(spec.model.norm == NormPlacement::pre),
      dropout_(spec.model.dropout),
      residual_norm_(
          spec.kernels.residual_norm({spec.dtype, spec.model.d_model, static_cast<float>(spec.model.dropout)})),
      tensor_ops_(spec.kernels.tensor_ops({spec.dtype})) {
  auto const declare_norm = [&](std::string const& name) {
    return Norm{&spec.parameters.declare({name + ".weight", {spec.model.d_model}, Initializer::ones(), {}, {}}),
                &spec.parameters.declare({name + ".bias", {spec.model.d_model}, Initializer::zeros(), {}, {}})};
  };
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    for (std::string const& sublayer : sublayers) {
      std::string const name = fmt::format("{}.layers.{}.{}", spec.name, layer, sublayer);
      auto branch = registry.build(sublayer, spec.named(name));
      sublayers_.push_back({name, std::move(branch), declare_norm(name + ".norm")});
    }
  }
  if (pre_) {
    final_norm_ = declare_norm(spec.name + ".norm");
  }
}

ResidualStack::Norm const& ResidualStack::norm_after(std::size_t index) const {
  if (!pre_) {
    return sublayers_[index].norm;
  }
  return index + 1 < sublayers_.size() ? sublayers_[index + 1].norm : final_norm_;
}

ResidualStack::Joint ResidualStack::join(Context& context, ResidualNormCall call) const {
  Shape const shape = call.residual.shape();
  DType const dtype = call.residual.dtype();
  ResidualNormOutput output;
  if (!call.branch.empty()) {
    output.sum = context.arena.allocate(dtype, shape);
  }
  output.normalized = context.arena.allocate(dtype, shape);
  output.mean = context.arena.allocate(statistics_dtype(dtype), {shape[0]});
  output.reciprocal_deviation = context.arena.allocate(statistics_dtype(dtype), {shape[0]});
  residual_norm_->forward(context.execution, call, output);
  if (call.branch.empty()) {
    output.sum = call.residual;
  }
  return {std::move(call), std::move(output)};
}

Stream ResidualStack::run(Context& context, Stream const& input, Activations& activations,
                          RunBranch const& run_branch) const {
  Tensor residual = input.hidden;
  Stream stream = input;
  if (pre_) {
    Norm const& norm = sublayers_.empty() ? final_norm_ : sublayers_.front().norm;
    activations.first =
        join(context, {.residual = residual, .branch = {}, .weight = norm.weight->value, .bias = norm.bias->value});
    stream.hidden = activations.first.output.normalized;
  }
  for (std::size_t index = 0; index < sublayers_.size(); ++index) {
    Norm const& norm = norm_after(index);
    Stream const branch = run_branch(index, stream);
    activations.joints.push_back(
        join(context, {.residual = residual,
                       .branch = branch.hidden,
                       .dropout = make_dropout(context, dropout_, sublayers_[index].name + ".residual_dropout", side_),
                       .weight = norm.weight->value,
                       .bias = norm.bias->value}));
    ResidualNormOutput const& output = activations.joints.back().output;
    stream = {output.normalized, branch.memory};
    residual = pre_ ? output.sum : output.normalized;
  }
  return stream;
}

Stream ResidualStack::forward(Context& context, Stream const& input, Saved& saved) const {
  Activations activations;
  activations.branches.resize(sublayers_.size());
  Stream const output = run(context, input, activations, [&](std::size_t index, Stream const& stream) {
    return sublayers_[index].branch->forward(context, stream, activations.branches[index]);
  });
  saved.keep(std::move(activations));
  return output;
}

Stream ResidualStack::backward(Context& context, Stream const& grad_output, Saved const& saved) const {
  auto const& activations = saved.get<Activations>();
  Tensor const grad = grad_output.hidden;  // of the residual stream, in place
  Tensor const grad_branch = context.arena.allocate(grad.dtype(), grad.shape());
  Tensor grad_normalized = grad;
  Tensor grad_sum;  // pre-LN: what the residual stream brings back beside the norm
  // Two buffers for what a pre-LN branch hands to the norm before it: it must outlive the branch's scope.
  Tensor const handed = pre_ ? context.arena.allocate(grad.dtype(), grad.shape()) : Tensor();
  auto const gradients = [&](Norm const& norm, bool branch) {
    return ResidualNormGradients{grad, branch ? grad_branch : Tensor(), norm.weight->gradient, norm.bias->gradient};
  };
  for (std::size_t index = sublayers_.size(); index-- > 0;) {
    Joint const& joint = activations.joints[index];
    residual_norm_->backward(context.execution, joint.call, joint.output, grad_normalized, grad_sum,
                             gradients(norm_after(index), true));
    ArenaScope const scope(context.arena);
    Stream const grad_input =
        sublayers_[index].branch->backward(context, {grad_branch, grad_output.memory}, activations.branches[index]);
    if (pre_) {
      tensor_ops_->copy(context.execution, grad_input.hidden, handed);
      grad_normalized = handed;
      grad_sum = grad;
    } else {
      tensor_ops_->add(context.execution, grad, grad_input.hidden);
    }
  }
  if (pre_) {
    Norm const& norm = sublayers_.empty() ? final_norm_ : sublayers_.front().norm;
    residual_norm_->backward(context.execution, activations.first.call, activations.first.output, grad_normalized,
                             grad_sum, gradients(norm, false));
  }
  return {grad, grad_output.memory};
}

Stream ResidualStack::decode(Context& context, Stream const& input, DecodeStep const& step,
                             std::vector<DecodeCache>& caches) const {
  Activations activations;
  return run(context, input, activations, [&](std::size_t index, Stream const& stream) {
    return sublayers_[index].branch->decode(context, stream, step, caches[index]);
  });
}

void ResidualStack::reorder(Context& context, Tensor const& parents, DecodeStep const& step,
                            std::vector<DecodeCache>& caches) const {
  for (std::size_t index = 0; index < sublayers_.size(); ++index) {
    sublayers_[index].branch->reorder(context, parents, step, caches[index]);
  }
}

}  // namespace heddle
