#include <fmt/format.h>

#include <heddle/core/attention/cross_attention.hpp>
#include <heddle/core/base/error.hpp>

namespace heddle {

namespace {

/// The side of the stack's encoder output.
Side encoder_side(LayerSpec const& spec) {
  if (!spec.has_encoder_output()) {
    throw ConfigError(
        fmt::format("{} names cross_attention, but this stack has nothing to attend to besides itself; use it in a "
                    "decoder that follows an encoder",
                    spec.model.place("sublayers")));
  }
  return *spec.encoder_side;
}

}  // namespace

LayerTraits CrossAttention::traits() {
  return AttentionCore::traits();
}

CrossAttention::CrossAttention(LayerSpec const& spec)
    : sizes_(attention_sizes(spec.model, spec.options)),
      q_(spec.named(spec.name + ".q"), {spec.model.d_model, sizes_.query_columns()}, Linear::Split::outputs),
      kv_(spec, spec.model.d_model, {{"k", sizes_.key_columns()}, {"v", sizes_.key_columns()}},
          Linear::Split::outputs_inside),
      out_(spec.named(spec.name + ".out"), {sizes_.query_columns(), spec.model.d_model}, Linear::Split::inputs),
      core_(spec, encoder_side(spec), AttentionMask::bidirectional()),
      tensor_ops_(spec.kernels.select<TensorOps>({spec.dtype})) {}

HiddenStates CrossAttention::forward(LayerContext& context, HiddenStates const& input, Saved& saved) const {
  Tensor const q = q_.forward(context, input.hidden);
  Tensor const kv = kv_.forward(context, input.encoder_output);
  auto const& activations =
      saved.keep(Activations{input.hidden, input.encoder_output, core_.forward(context, q, keys(kv), values(kv))});
  return {out_.forward(context, activations.attention.output), input.encoder_output};
}

HiddenStates CrossAttention::backward(LayerContext& context, HiddenStates const& grad_output,
                                      Saved const& saved) const {
  auto const& [input, encoder_output, attention] = saved.get<Activations>();
  Tensor const grad_attended = out_.backward(context, grad_output.hidden, attention.output);
  Tensor const grad_q = context.arena.allocate(input.dtype(), attention.q.shape());
  Tensor const grad_kv = context.arena.allocate(input.dtype(), {encoder_output.dim(0), 2 * attention.k.dim(1)});
  core_.backward(context, attention, grad_attended, {grad_q, keys(grad_kv), values(grad_kv)});
  kv_.backward_add(context, grad_kv, encoder_output, grad_output.encoder_output);
  return {q_.backward(context, grad_q, input), grad_output.encoder_output};
}

HiddenStates CrossAttention::decode(LayerContext& context, HiddenStates const& input, DecodeStep const& step,
                                    DecodeCache& cache) const {
  bool const first = cache.empty();
  if (first) {
    Tensor const kv = kv_.forward(context, input.encoder_output);
    Tensor const kept = Tensor::allocate(kv.dtype(), kv.shape());
    tensor_ops_->copy(context.execution, core_.keys_to_cache(context, keys(kv), step), keys(kept));
    tensor_ops_->copy(context.execution, values(kv), values(kept));
    cache.keep(
        Cache{kept, core_.has_state() ? core_.new_state(context, kv.dtype(), step.queries.count) : Tensor(), {}});
  }
  Tensor const q = q_.forward(context, input.hidden);
  auto const& [kv, state, spare_state] = cache.get<Cache>();
  AttentionCore::DecodeKeys encoder_output{keys(kv), values(kv), step.encoder_output, state};
  if (core_.has_state() && !first) {
    // The state has the encoder output's keys already.
    std::int64_t const rows = step.queries.count;
    encoder_output.sequences.length =
        from_host<std::int32_t>(std::vector<std::int32_t>(static_cast<std::size_t>(rows)), {rows});
    encoder_output.sequences.max_length = 0;
  }
  return {out_.forward(context, core_.decode(context, q, encoder_output, step)), input.encoder_output};
}

void CrossAttention::reorder(LayerContext& context, Tensor const& parents, DecodeStep const& /*step*/,
                             DecodeCache& cache) const {
  auto& held = cache.get<Cache>();
  if (core_.has_state()) {
    reorder_rows(context, *tensor_ops_, parents, held.state.dim(1), {held.state, held.spare_state});
  }
}

}  // namespace heddle
