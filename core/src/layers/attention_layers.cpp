#include <fmt/format.h>

#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/core/layers/attention_layers.hpp>
#include <heddle/core/operations/attention.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <utility>

namespace heddle {

namespace {

/// The side of a spec whose stream has a memory.
Side side_with_memory(LayerSpec const& spec) {
  if (spec.side == Side::source) {
    throw ConfigError(
        fmt::format("model.encoder_sublayers names cross_attention ({}), but an encoder has nothing to attend to "
                    "besides itself; use it in model.decoder_sublayers",
                    spec.name));
  }
  return spec.side;
}

/// This rank's heads.
std::int64_t heads_of(LayerSpec const& spec) {
  int const ranks = spec.parallel.tensor.size();
  if (spec.model.heads % ranks != 0) {
    throw ConfigError(fmt::format("model.heads = {} do not divide among parallel.tensor = {} ranks ({})",
                                  spec.model.heads, ranks, spec.name));
  }
  return spec.model.heads / ranks;
}

}  // namespace

AttentionCore::AttentionCore(LayerSpec const& spec, bool causal)
    : name_(spec.name),
      side_(spec.side),
      mask_(causal ? AttentionMask::causal() : AttentionMask::bidirectional()),
      dropout_(spec.model.attention_dropout),
      heads_(heads_of(spec)),
      first_head_(heads_ * spec.parallel.tensor.rank()),
      head_dim_(spec.model.d_model / spec.model.heads),
      attention_(spec.kernels.select<Attention>({.dtype = spec.dtype,
                                                 .heads = heads_,
                                                 .head_dim = head_dim_,
                                                 .mask = mask_,
                                                 .dropout_rate = static_cast<float>(dropout_)})),
      context_attention_(spec.parallel.context, spec.parallel.context_mode, context_kernel(spec),
                         spec.kernels.select<TensorOps>({spec.dtype})) {}

std::shared_ptr<Attention> AttentionCore::context_kernel(LayerSpec const& spec) const {
  DType const dtype = ContextAttention::kernel_dtype(spec.parallel.context_mode, spec.dtype);
  if (spec.parallel.context.size() == 1 || dtype == spec.dtype) {
    return attention_;
  }
  return spec.kernels.select<Attention>({.dtype = dtype,
                                         .heads = heads_,
                                         .head_dim = head_dim_,
                                         .mask = mask_,
                                         .dropout_rate = static_cast<float>(dropout_)});
}

AttentionCall AttentionCore::call(LayerContext const& context, Side keys, Activations const& activations) const {
  AttentionCall call{.q = activations.q,
                     .k = activations.k,
                     .v = activations.v,
                     .queries = context.pack.rows(side_).sequences,
                     .keys = context.pack.rows(keys).sequences,
                     .heads = heads_,
                     .scale = 1 / std::sqrt(static_cast<double>(head_dim_)),
                     .mask = mask_,
                     .dropout = make_dropout(context, dropout_, name_ + ".dropout", side_)};
  call.dropout.first_column = static_cast<std::int32_t>(first_head_);
  return call;
}

ContextAttention::Place AttentionCore::place(LayerContext& context, Side keys) const {
  return {context.execution, context.arena, context.pack.context(side_), context.pack.context(keys)};
}

AttentionCore::Activations AttentionCore::forward(LayerContext& context, Side keys, Tensor const& q, Tensor const& k,
                                                  Tensor const& v) const {
  Activations activations{q, k, v, context.arena.allocate(q.dtype(), q.shape()), {}};
  AttentionCall const attention_call = call(context, keys, activations);
  if (spread(context)) {
    activations.kept = context_attention_.forward(place(context, keys), attention_call, activations.output);
    return activations;
  }
  Tensor const log_sum_exp = context.arena.allocate(statistics_dtype(q.dtype()), {q.dim(0), heads_});
  attention_->forward(context.execution, attention_call, activations.output, log_sum_exp);
  activations.kept = {attention_call, activations.output, log_sum_exp};
  return activations;
}

void AttentionCore::backward(LayerContext& context, Side keys, Activations const& activations,
                             Tensor const& grad_output, AttentionGradients const& gradients) const {
  auto const& kept = activations.kept;
  if (spread(context)) {
    context_attention_.backward(place(context, keys), kept, grad_output, gradients);
  } else {
    attention_->backward(context.execution, kept.call, kept.output, kept.log_sum_exp, grad_output, gradients);
  }
}

Tensor AttentionCore::decode(LayerContext& context, Tensor const& q, Tensor const& k, Tensor const& v,
                             Sequences const& queries, Sequences const& keys) const {
  Tensor const output = context.arena.allocate(q.dtype(), q.shape());
  Tensor const log_sum_exp = context.arena.allocate(statistics_dtype(q.dtype()), {q.dim(0), heads_});
  attention_->forward(context.execution,
                      {.q = q,
                       .k = k,
                       .v = v,
                       .queries = queries,
                       .keys = keys,
                       .heads = heads_,
                       .scale = 1 / std::sqrt(static_cast<double>(head_dim_))},
                      output, log_sum_exp);
  return output;
}

SelfAttention::SelfAttention(LayerSpec const& spec)
    : side_(spec.side),
      qkv_(spec, spec.model.d_model, {{"q", spec.model.d_model}, {"k", spec.model.d_model}, {"v", spec.model.d_model}},
           Linear::Split::outputs),
      out_(spec.named(spec.name + ".out"), {spec.model.d_model, spec.model.d_model}, Linear::Split::inputs),
      core_(spec, spec.side == Side::target),
      tensor_ops_(spec.kernels.select<TensorOps>({spec.dtype})) {}

HiddenStates SelfAttention::forward(LayerContext& context, HiddenStates const& input, Saved& saved) const {
  Tensor const qkv = qkv_.forward(context, input.hidden);
  std::int64_t const width = qkv.dim(1) / 3;
  auto const& activations =
      saved.keep(Activations{input.hidden, core_.forward(context, side_, qkv.columns(0, width),
                                                         qkv.columns(width, width), qkv.columns(2 * width, width))});
  return {out_.forward(context, activations.attention.output), input.memory};
}

HiddenStates SelfAttention::backward(LayerContext& context, HiddenStates const& grad_output, Saved const& saved) const {
  auto const& [input, attention] = saved.get<Activations>();
  Tensor const grad_attended = out_.backward(context, grad_output.hidden, attention.output);
  std::int64_t const width = attention.q.dim(1);
  Tensor const grad_qkv = context.arena.allocate(input.dtype(), {attention.q.dim(0), 3 * width});
  core_.backward(context, side_, attention, grad_attended,
                 {grad_qkv.columns(0, width), grad_qkv.columns(width, width), grad_qkv.columns(2 * width, width)});
  return {qkv_.backward(context, grad_qkv, input), grad_output.memory};
}

HiddenStates SelfAttention::decode(LayerContext& context, HiddenStates const& input, DecodeStep const& step,
                                   DecodeCache& saved) const {
  Tensor const qkv = qkv_.forward(context, input.hidden);
  std::int64_t const width = qkv.dim(1) / 3;
  std::int64_t const rows = qkv.dim(0);
  if (saved.empty()) {
    Shape const shape{rows, step.capacity * width};
    saved.keep(Cache{Tensor::allocate(qkv.dtype(), shape), Tensor::allocate(qkv.dtype(), shape), {}, {}});
  }
  auto const& cache = saved.get<Cache>();
  tensor_ops_->copy(context.execution, qkv.columns(width, width), cache.keys.columns(step.time * width, width));
  tensor_ops_->copy(context.execution, qkv.columns(2 * width, width), cache.values.columns(step.time * width, width));
  Shape const token_rows{rows * step.capacity, width};
  Tensor const attended = core_.decode(context, qkv.columns(0, width), cache.keys.reshaped(token_rows),
                                       cache.values.reshaped(token_rows), step.queries, step.keys);
  return {out_.forward(context, attended), input.memory};
}

void SelfAttention::reorder(LayerContext& context, Tensor const& parents, DecodeStep const& step,
                            DecodeCache& saved) const {
  auto& cache = saved.get<Cache>();
  std::int64_t const width = cache.keys.dim(1) / step.capacity;
  std::int64_t const used = (step.time + 1) * width;
  auto const gather = [&](Tensor& kept, Tensor& spare) {
    if (spare.empty() || spare.dim(0) < parents.dim(0)) {
      spare = Tensor::allocate(kept.dtype(), {parents.dim(0), kept.dim(1)});
    }
    Tensor const reordered = spare.rows(0, parents.dim(0));
    tensor_ops_->gather_rows(context.execution, kept.columns(0, used), parents, reordered.columns(0, used));
    spare = std::exchange(kept, reordered);
  };
  gather(cache.keys, cache.spare_keys);
  gather(cache.values, cache.spare_values);
}

CrossAttention::CrossAttention(LayerSpec const& spec)
    : side_(side_with_memory(spec)),
      q_(spec.named(spec.name + ".q"), {spec.model.d_model, spec.model.d_model}, Linear::Split::outputs),
      kv_(spec, spec.model.d_model, {{"k", spec.model.d_model}, {"v", spec.model.d_model}},
          Linear::Split::outputs_inside),
      out_(spec.named(spec.name + ".out"), {spec.model.d_model, spec.model.d_model}, Linear::Split::inputs),
      core_(spec, false),
      tensor_ops_(spec.kernels.select<TensorOps>({spec.dtype})) {}

HiddenStates CrossAttention::forward(LayerContext& context, HiddenStates const& input, Saved& saved) const {
  Tensor const q = q_.forward(context, input.hidden);
  Tensor const kv = kv_.forward(context, input.memory);
  std::int64_t const width = q.dim(1);
  auto const& activations =
      saved.keep(Activations{input.hidden, input.memory,
                             core_.forward(context, Side::source, q, kv.columns(0, width), kv.columns(width, width))});
  return {out_.forward(context, activations.attention.output), input.memory};
}

HiddenStates CrossAttention::backward(LayerContext& context, HiddenStates const& grad_output,
                                      Saved const& saved) const {
  auto const& [input, memory, attention] = saved.get<Activations>();
  Tensor const grad_attended = out_.backward(context, grad_output.hidden, attention.output);
  std::int64_t const width = attention.q.dim(1);
  Tensor const grad_q = context.arena.allocate(input.dtype(), attention.q.shape());
  Tensor const grad_kv = context.arena.allocate(input.dtype(), {memory.dim(0), 2 * width});
  core_.backward(context, Side::source, attention, grad_attended,
                 {grad_q, grad_kv.columns(0, width), grad_kv.columns(width, width)});
  kv_.backward_add(context, grad_kv, memory, grad_output.memory);
  return {q_.backward(context, grad_q, input), grad_output.memory};
}

HiddenStates CrossAttention::decode(LayerContext& context, HiddenStates const& input, DecodeStep const& step,
                                    DecodeCache& saved) const {
  if (saved.empty()) {
    Tensor const kv = kv_.forward(context, input.memory);
    Tensor const kept = Tensor::allocate(kv.dtype(), kv.shape());
    tensor_ops_->copy(context.execution, kv, kept);
    saved.keep(Cache{kept});
  }
  Tensor const q = q_.forward(context, input.hidden);
  Tensor const& kv = saved.get<Cache>().kv;
  std::int64_t const width = q.dim(1);
  Tensor const attended =
      core_.decode(context, q, kv.columns(0, width), kv.columns(width, width), step.queries, step.memory);
  return {out_.forward(context, attended), input.memory};
}

}  // namespace heddle
