#include <fmt/format.h>

#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/core/layers/attention_core.hpp>
#include <heddle/core/operations/attention.hpp>
#include <heddle/core/operations/tensor_ops.hpp>

namespace heddle {

namespace {

/// Of both layers, with any mask; scores as if every query saw every key.
Cost attention_cost(ModelConfig const& keys, LayerOptions const& options, LayerLoad const& load) {
  AttentionSizes const sizes = attention_sizes(keys, options);
  AttentionProblem const problem{
      .dtype = load.dtype, .heads = sizes.heads, .head_dim = sizes.head_dim, .kv_heads = sizes.kv_heads};
  AttentionExtents const extents{.queries = load.tokens, .keys = load.tokens, .pairs = load.tokens * load.sequence};
  return linear_cost(load, keys.d_model, sizes.query_columns()) +
         2 * linear_cost(load, keys.d_model, sizes.key_columns()) + forward_cost(problem, extents) +
         linear_cost(load, sizes.query_columns(), keys.d_model);
}

/// Heads are shared by the ranks of the tensor group and, in ulysses, by those of the context group.
std::string attention_refusal(ModelConfig const& keys, LayerOptions const& options, LayerUse const& use) {
  AttentionSizes const sizes = attention_sizes(keys, options);
  if (std::string reason = uneven_over_tensor("model.heads", sizes.heads, use); !reason.empty()) {
    return reason;
  }
  if (std::string reason = uneven_over_tensor(options.place("kv_heads"), sizes.kv_heads, use); !reason.empty()) {
    return reason;
  }
  if (use.context > 1 && sizes.kv_heads != sizes.heads) {
    return fmt::format("{} = {} with {} heads: keys that heads share cannot be split over parallel.context = {}",
                       options.place("kv_heads"), sizes.kv_heads, sizes.heads, use.context);
  }
  std::int64_t const heads = sizes.heads / use.tensor;
  if (use.context_mode == ContextMode::ulysses && heads % use.context != 0) {
    return fmt::format(
        "in ulysses each context rank computes some of the heads, and the {} of a rank (model.heads / parallel.tensor) "
        "do not divide among parallel.context = {}; {} would do, or parallel.context_mode = \"ring\"",
        heads, use.context, divisors_in_words(heads));
  }
  return "";
}

}  // namespace

AttentionSizes attention_sizes(ModelConfig const& keys, LayerOptions const& options) {
  std::int64_t const heads = keys.heads;
  if (!options.has("head_dim") && keys.d_model % heads != 0) {
    throw ConfigError(fmt::format("{} is not given, and the {} heads of a layer do not divide model.d_model = {}",
                                  options.place("head_dim"), heads, keys.d_model));
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
  return {
      .options =
          {{.name = "kv_heads", .meaning = "heads of keys and values; not given: heads", .least = 1, .most = 4096},
           {.name = "head_dim", .meaning = "columns of a head; not given: d_model / heads", .least = 1, .most = 65536}},
      .cost = attention_cost,
      .refusal = attention_refusal};
}

AttentionCore::AttentionCore(LayerSpec const& spec, Side keys, AttentionMask const& mask)
    : name_(spec.name),
      side_(spec.side),
      keys_(keys),
      mask_(mask),
      dropout_(spec.model.attention_dropout),
      sizes_(attention_sizes(spec.model, spec.options)),
      heads_(sizes_.heads / spec.parallel.tensor.size()),
      kv_heads_(sizes_.kv_heads == sizes_.heads ? 0 : sizes_.kv_heads / spec.parallel.tensor.size()),
      first_head_(heads_ * spec.parallel.tensor.rank()),
      attention_(spec.kernels.select<Attention>({.dtype = spec.dtype,
                                                 .heads = heads_,
                                                 .head_dim = sizes_.head_dim,
                                                 .kv_heads = kv_heads_,
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
