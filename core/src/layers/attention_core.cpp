#include <fmt/format.h>

#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/core/layers/attention_core.hpp>
#include <heddle/core/operations/attention.hpp>
#include <heddle/core/operations/tensor_ops.hpp>

namespace heddle {

namespace {

std::int64_t heads_of_this_rank(LayerSpec const& spec, AttentionSizes const& sizes) {
  int const ranks = spec.parallel.tensor.size();
  if (sizes.heads % ranks != 0) {
    throw ConfigError(fmt::format("{} = {} cannot be divided among parallel.tensor = {} ranks",
                                  spec.model.place("heads"), sizes.heads, ranks));
  }
  if (sizes.kv_heads % ranks != 0) {
    throw ConfigError(fmt::format("{} = {} cannot be divided among parallel.tensor = {} ranks",
                                  spec.options.place("kv_heads"), sizes.kv_heads, ranks));
  }
  return sizes.heads / ranks;
}

}  // namespace

AttentionSizes attention_sizes(ModelConfig const& keys, LayerOptions const& options) {
  std::int64_t const heads = keys.heads;
  if (!options.has("head_dim") && keys.d_model % heads != 0) {
    throw ConfigError(fmt::format("{} = {} does not divide model.d_model = {}; choose a divisor, or set {}",
                                  keys.place("heads"), heads, keys.d_model, options.place("head_dim")));
  }
  AttentionSizes const sizes{heads, options.integer("kv_heads", heads),
                             options.integer("head_dim", keys.d_model / heads)};
  if (heads % sizes.kv_heads != 0) {
    throw ConfigError(fmt::format("{} = {} does not divide the {} heads of the queries", options.place("kv_heads"),
                                  sizes.kv_heads, heads));
  }
  return sizes;
}

LayerTraits AttentionCore::traits() {
  auto const multiplications = [](ModelConfig const& keys, LayerOptions const& options) {
    AttentionSizes const sizes = attention_sizes(keys, options);
    return 2 * keys.d_model * (sizes.query_columns() + sizes.key_columns());
  };
  return {
      .options =
          {{.name = "kv_heads", .meaning = "heads of keys and values; not given: heads", .least = 1, .most = 4096},
           {.name = "head_dim", .meaning = "columns of a head; not given: d_model / heads", .least = 1, .most = 65536}},
      .multiplications = multiplications};
}

AttentionCore::AttentionCore(LayerSpec const& spec, Side keys, AttentionMask const& mask)
    : name_(spec.name),
      side_(spec.side),
      keys_(keys),
      mask_(mask),
      dropout_(spec.model.attention_dropout),
      sizes_(attention_sizes(spec.model, spec.options)),
      heads_(heads_of_this_rank(spec, sizes_)),
      kv_heads_(sizes_.kv_heads == sizes_.heads ? 0 : sizes_.kv_heads / spec.parallel.tensor.size()),
      first_head_(heads_ * spec.parallel.tensor.rank()),
      attention_(spec.kernels.select<Attention>({.dtype = spec.dtype,
                                                 .heads = heads_,
                                                 .head_dim = sizes_.head_dim,
                                                 .kv_heads = kv_heads_,
                                                 .mask = mask_,
                                                 .dropout_rate = static_cast<float>(dropout_)})),
      context_attention_(spec.parallel.context, spec.parallel.context_mode, context_kernel(spec),
                         spec.kernels.select<TensorOps>({spec.dtype})) {
  int const ranks = spec.parallel.context.size();
  if (ranks > 1 && (kv_heads_ != 0 || mask_.is(MaskKind::window))) {
    throw ConfigError(fmt::format("{}: {} cannot be split over parallel.context = {} ranks", spec.name,
                                  kv_heads_ != 0 ? "attention with fewer kv_heads than heads" : "attention in a window",
                                  ranks));
  }
}

std::shared_ptr<Attention> AttentionCore::context_kernel(LayerSpec const& spec) const {
  DType const dtype = ContextAttention::kernel_dtype(spec.parallel.context_mode, spec.dtype);
  if (spec.parallel.context.size() == 1 || dtype == spec.dtype) {
    return attention_;
  }
  return spec.kernels.select<Attention>({.dtype = dtype,
                                         .heads = heads_,
                                         .head_dim = sizes_.head_dim,
                                         .kv_heads = kv_heads_,
                                         .mask = mask_,
                                         .dropout_rate = static_cast<float>(dropout_)});
}

AttentionCall AttentionCore::call(LayerContext const& context, Tensor const& q, Tensor const& k,
                                  Tensor const& v) const {
  AttentionCall call{.q = q,
                     .k = k,
                     .v = v,
                     .queries = context.pack.rows(side_).sequences,
                     .keys = context.pack.rows(keys_).sequences,
                     .heads = heads_,
                     .kv_heads = kv_heads_,
                     .scale = 1 / std::sqrt(static_cast<double>(sizes_.head_dim)),
                     .mask = mask_,
                     .dropout = make_dropout(context, dropout_, name_ + ".dropout", side_)};
  call.dropout.first_column = static_cast<std::int32_t>(first_head_);
  return call;
}

ContextAttention::Task AttentionCore::task(LayerContext& context) const {
  return {context.execution, context.arena, context.pack.context(side_), context.pack.context(keys_), side_ == keys_};
}

AttentionCore::Activations AttentionCore::forward(LayerContext& context, Tensor const& q, Tensor const& k,
                                                  Tensor const& v) const {
  Activations activations{q, k, v, context.arena.allocate(q.dtype(), q.shape()), {}};
  AttentionCall const attention_call = call(context, q, k, v);
  if (tokens_are_split(context)) {
    activations.kernel = context_attention_.forward(task(context), attention_call, activations.output);
    return activations;
  }
  Tensor const log_sum_exp = context.arena.allocate(statistics_dtype(q.dtype()), {q.dim(0), heads_});
  attention_->forward(context.execution, attention_call, activations.output, log_sum_exp);
  activations.kernel = {attention_call, activations.output, log_sum_exp};
  return activations;
}

void AttentionCore::backward(LayerContext& context, Activations const& activations, Tensor const& grad_output,
                             AttentionGradients const& gradients) const {
  auto const& kernel = activations.kernel;
  if (tokens_are_split(context)) {
    context_attention_.backward(task(context), kernel, grad_output, gradients);
  } else {
    attention_->backward(context.execution, kernel.call, kernel.output, kernel.log_sum_exp, grad_output, gradients);
  }
}

Tensor AttentionCore::decode(LayerContext& context, Tensor const& q, Tensor const& k, Tensor const& v,
                             Sequences const& queries, Sequences const& keys) const {
  Tensor const output = context.arena.allocate(q.dtype(), q.shape());
  Tensor const log_sum_exp = context.arena.allocate(statistics_dtype(q.dtype()), {q.dim(0), heads_});
  // The newest token is the last key, so a window is the only mask that hides keys from it.
  AttentionMask const mask = mask_.is(MaskKind::window) ? mask_ : AttentionMask::bidirectional();
  attention_->forward(context.execution,
                      {.q = q,
                       .k = k,
                       .v = v,
                       .queries = queries,
                       .keys = keys,
                       .heads = heads_,
                       .kv_heads = kv_heads_,
                       .scale = 1 / std::sqrt(static_cast<double>(sizes_.head_dim)),
                       .mask = mask},
                      output, log_sum_exp);
  return output;
}

}  // namespace heddle
