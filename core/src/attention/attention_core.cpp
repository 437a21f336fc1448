#include <algorithm>
#include <heddle/core/attention/attention_core.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/spelling.hpp>
#include <heddle/core/operations/attention_score.hpp>

#include "attention_options.hpp"

namespace heddle {

namespace {

/// The score of a plug-in that the option `score` names. [kernels] chooses no other: a score is mathematics.
std::shared_ptr<AttentionScore const> select_function(LayerSpec const& spec, std::string const& name) {
  AttentionScoreProblem const problem{statistics_dtype(spec.dtype), name};
  if (spec.kernels.registries.supported<AttentionScore>(problem)) {
    return spec.kernels.registries.select<AttentionScore>(KernelChoices(), problem);
  }
  std::vector<std::string> names(built_in_scores.begin(), built_in_scores.end());
  if (AnyKernelRegistry const* const scores = spec.kernels.registries.registry(AttentionScore::operation)) {
    std::ranges::copy(scores->names(), std::back_inserter(names));
  }
  throw ConfigError("{}: there is no score \"{}\", built in or of a plug-in; {}", spec.options.place("score"), name,
                    nearest_or_all(name, names));
}

/// The part of a call that is the same in all calls of a layer.
AttentionCall base_call(LayerSpec const& spec, AttentionSizes const& sizes, AttentionMask const& mask) {
  AttentionCall call;
  call.heads = sizes.heads / spec.parallel.tensor.size();
  call.kv_heads = sizes.kv_heads == sizes.heads ? 0 : sizes.kv_heads / spec.parallel.tensor.size();
  AttentionScores const scores = attention_scores(spec.model, spec.options, sizes.head_dim);
  call.score = scores.kind;
  if (!scores.function.empty()) {
    call.function = select_function(spec, scores.function);
  }
  call.scale = scores.scale;
  call.soft_cap = scores.soft_cap;
  call.mask = mask;
  return call;
}

/// The implementation for a layer. An error starts with the layer's name.
std::shared_ptr<Attention> select(LayerSpec const& spec, AttentionProblem const& problem) {
  try {
    return spec.kernels.select<Attention>(problem);
  } catch (ConfigError const& error) {
    throw ConfigError("{}: {}", spec.name, error.what());
  }
}

/// The positions of the stack, to which this layer is added, or the layer's own; null in cross-attention.
std::shared_ptr<AttentionPositions> positions_of(LayerSpec const& spec, Side keys, AttentionSizes const& sizes) {
  if (keys != spec.side || !act_in_attention(spec.model.positions)) {
    return nullptr;
  }
  if (has_own_positions(spec.options)) {
    ModelConfig own = spec.model;
    own.rotary_base = spec.options.number("rotary_base", own.rotary_base);
    own.rotary_scaling = spec.options.has("rotary_base") ? RotaryScaling::none : own.rotary_scaling;
    LayerSpec const layer = spec.with_keys(spec.name, own);
    auto positions = make_attention_positions({layer, sizes.heads, {}});
    positions->add_layer(layer, sizes.heads, sizes.head_dim);
    return positions;
  }
  if (spec.positions == nullptr) {
    throw Error("{}: model.positions = \"{}\", but its stack has none to give", spec.name,
                name_of(spec.model.positions));
  }
  spec.positions->add_layer(spec, sizes.heads, sizes.head_dim);
  return spec.positions;
}

}  // namespace

AttentionCore::AttentionCore(LayerSpec const& spec, Side keys, AttentionMask const& mask)
    : name_(spec.name),
      dropout_name_(spec.name + ".dropout"),
      side_(spec.side),
      keys_(keys),
      dropout_(spec.model.attention_dropout),
      sizes_(attention_sizes(spec.model, spec.options)),
      base_(base_call(spec, sizes_, mask)),
      first_head_(base_.heads * spec.parallel.tensor.rank()),
      positions_(positions_of(spec, keys, sizes_)),
      attention_(select(spec, problem(spec.dtype))),
      context_attention_(spec.parallel.context, spec.parallel.context_mode, context_kernel(spec),
                         spec.kernels.select<TensorOps>({spec.dtype})),
      tensor_ops_(spec.kernels.select<TensorOps>({spec.dtype})),
      tensor_(spec.parallel.tensor) {
  joint_norm_ = spec.options.flag("joint_query_key_norm", false);
  if (joint_norm_) {
    query_norm_.emplace(spec, Norm::Declaration{spec.name + ".q_norm", sizes_.query_columns()});
    key_norm_.emplace(spec, Norm::Declaration{spec.name + ".k_norm", sizes_.key_columns()});
  } else if (spec.options.flag("query_key_norm", false)) {
    // A rank of a tensor group has some of the heads that share the weights.
    query_norm_.emplace(spec, Norm::Declaration{spec.name + ".q_norm", sizes_.head_dim, {MeshAxis::tensor}});
    key_norm_.emplace(spec, Norm::Declaration{spec.name + ".k_norm", sizes_.head_dim, {MeshAxis::tensor}});
  }
  if (double const weight = guided_alignment_weight(spec.options); weight > 0) {
    guide_.emplace(spec, weight, sizes_.head_dim, base_.scale);
  }
  if (base_.score == ScoreKind::additive) {
    weight_ops_ = spec.kernels.select<TensorOps>({statistics_dtype(spec.dtype)});
    score_weight_ =
        &spec.parameters.declare({.name = spec.name + ".score.weight",
                                  .placement = {{sizes_.heads, sizes_.head_dim}, Placement::sharded_along(0)},
                                  .initializer = Initializer::xavier_uniform(sizes_.head_dim, 1)});
  }
}

AttentionProblem AttentionCore::problem(DType dtype) const {
  return {.dtype = dtype,
          .heads = base_.heads,
          .head_dim = sizes_.head_dim,
          .kv_heads = base_.kv_heads,
          .mask = base_.mask,
          .score = base_.score,
          .function = base_.function,
          .soft_cap = base_.soft_cap > 0,
          .bias = positions_ != nullptr && positions_->has_bias(),
          .dropout_rate = static_cast<float>(dropout_)};
}

std::shared_ptr<Attention> AttentionCore::context_kernel(LayerSpec const& spec) const {
  int const ranks = spec.parallel.context.size();
  if (ranks == 1) {
    return attention_;
  }
  // The problem of the calls that ContextAttention makes.
  AttentionProblem split = problem(spec.dtype);
  if (spec.parallel.context_mode == ContextMode::ring) {
    split.positions = true;
    split.accumulate = true;
    DType const sums = ContextAttention::sum_dtype(spec.parallel.context_mode, spec.dtype);
    if (auto kernel = select(spec, split); kernel->wide_results() || sums == spec.dtype) {
      return kernel;
    }
    split.dtype = sums;
  } else if (base_.heads % ranks == 0) {
    split.heads = base_.heads / ranks;
    split.kv_heads = base_.kv_heads / ranks;
  }
  return select(spec, split);
}

AttentionCall AttentionCore::call(LayerContext& context, Tensor const& q, Tensor const& k, Tensor const& v) const {
  AttentionCall call = base_;
  call.q = q;
  call.k = k;
  call.v = v;
  if (positions_ != nullptr) {
    call.bias = positions_->bias(context);
  }
  if (score_weight_ != nullptr) {
    call.score_weight = kept_weight(context, *weight_ops_, score_weight_->value);
  }
  return call;
}

AttentionCall AttentionCore::pack_call(LayerContext& context, Tensor const& q, Tensor const& k, Tensor const& v) const {
  TokenRows const& keys = context.pack.rows(keys_);
  AttentionCall result = call(context, q, k, v);
  result.queries = context.pack.rows(side_).sequences;
  result.keys = keys.sequences;
  result.dropout = make_dropout(context, dropout_, dropout_name_, side_);
  result.dropout.first_column = static_cast<std::int32_t>(first_head_);
  if (base_.mask.is(MaskKind::prefix)) {
    if (keys.prefix_length.empty()) {
      throw Error("{}: mask = \"prefix\", but the pack's sequences have no prefixes", name_);
    }
    result.prefix_length = keys.prefix_length;
  }
  return result;
}

ContextAttention::Task AttentionCore::task(LayerContext& context) const {
  return {context.execution, context.arena, context.pack.context(side_), context.pack.context(keys_), side_ == keys_};
}

Tensor AttentionCore::normalize(LayerContext& context, std::optional<Norm> const& norm, Tensor const& x,
                                Norm::Activations& activations) const {
  if (!norm) {
    return x;
  }
  Tensor const rows = rows_for_norm(context, x);
  std::int64_t const columns = joint_norm_ ? rows.dim(1) : sizes_.head_dim;
  activations = norm->forward(context, {rows.reshaped({rows.size() / columns, columns})});
  return own_columns(activations.output.normalized.reshaped(rows.shape()), x);
}

Tensor AttentionCore::rows_for_norm(LayerContext& context, Tensor const& x) const {
  Tensor own = x;
  if (!x.contiguous()) {
    own = context.arena.allocate(x.dtype(), x.shape());
    tensor_ops_->copy(context.execution, x, own);
  }
  if (!joint_norm_ || tensor_.size() == 1) {
    return own;
  }
  std::int64_t const count = x.dim(0);
  std::int64_t const columns = x.dim(1);
  Tensor const rows = context.arena.allocate(x.dtype(), {count, tensor_.size() * columns});
  ArenaScope const scope(context.arena);
  Tensor const parts = context.arena.allocate(x.dtype(), {tensor_.size() * count, columns});
  tensor_.all_gather(own, parts);
  for (int rank = 0; rank < tensor_.size(); ++rank) {
    tensor_ops_->copy(context.execution, parts.rows(rank * count, count), rows.columns(rank * columns, columns));
  }
  return rows;
}

Tensor AttentionCore::own_columns(Tensor const& rows, Tensor const& x) const {
  return rows.dim(1) == x.dim(1) ? rows : rows.columns(tensor_.rank() * x.dim(1), x.dim(1));
}

void AttentionCore::normalize_backward(LayerContext& context, Norm const& norm, Norm::Activations const& activations,
                                       Tensor const& grad, Tensor const& grad_x) const {
  ArenaScope const scope(context.arena);
  Tensor const whole = rows_for_norm(context, grad);
  Tensor const rows = whole.reshaped(activations.output.normalized.shape());
  norm.backward(context, activations, {.normalized = rows, .residual = rows});
  tensor_ops_->copy(context.execution, own_columns(whole, grad), grad_x);
}

AttentionCore::Activations AttentionCore::forward(LayerContext& context, Tensor const& q, Tensor const& k,
                                                  Tensor const& v) const {
  Activations activations{q, k, v, context.arena.allocate(q.dtype(), q.shape()), {}, {}, {}, {}};
  Tensor const queries = normalize(context, query_norm_, q, activations.q_norm);
  Tensor const keys = normalize(context, key_norm_, k, activations.k_norm);
  if (guide_) {
    activations.guide = guide_->forward(context, queries, keys);
  }
  AttentionCall const attention_call = pack_call(context, queries, keys, v);
  if (rotates()) {
    Tensor const& position = context.pack.rows(side_).position;
    positions_->rotate(context, queries, sizes_.head_dim, position, false);
    positions_->rotate(context, keys, sizes_.head_dim, position, false);
  }
  if (tokens_are_split(context)) {
    activations.kernel = context_attention_.forward(task(context), attention_call, activations.output);
    return activations;
  }
  Tensor const log_sum_exp = context.arena.allocate(statistics_dtype(q.dtype()), {q.dim(0), base_.heads});
  attention_->forward(context.execution, attention_call, activations.output, log_sum_exp);
  activations.kernel = {attention_call, activations.output, log_sum_exp};
  return activations;
}

void AttentionCore::backward(LayerContext& context, Activations const& activations, Tensor const& grad_output,
                             AttentionGradients const& gradients) const {
  auto const& kernel = activations.kernel;
  AttentionGradients all = gradients;
  if (query_norm_) {
    all.q = context.arena.allocate(activations.q.dtype(), activations.q.shape());
    all.k = context.arena.allocate(activations.k.dtype(), activations.k.shape());
  }
  if (positions_ != nullptr) {
    all.bias = positions_->bias_gradient(context);
  }
  if (score_weight_ != nullptr) {
    all.score_weight = context.gradient_of(*score_weight_);
  }
  if (tokens_are_split(context)) {
    context_attention_.backward(task(context), kernel, grad_output, all);
  } else {
    attention_->backward(context.execution, kernel.call, kernel.output, kernel.log_sum_exp, grad_output, all);
  }
  if (guide_) {
    guide_->backward(context, activations.guide, all.q, all.k);
  }
  if (positions_ != nullptr) {
    positions_->bias_gradient_done(context, all.bias);
  }
  if (rotates()) {
    Tensor const& position = context.pack.rows(side_).position;
    positions_->rotate(context, all.q, sizes_.head_dim, position, true);
    positions_->rotate(context, all.k, sizes_.head_dim, position, true);
  }
  if (query_norm_) {
    normalize_backward(context, *query_norm_, activations.q_norm, all.q, gradients.q);
    normalize_backward(context, *key_norm_, activations.k_norm, all.k, gradients.k);
  }
}

Tensor AttentionCore::keys_to_cache(LayerContext& context, Tensor const& k, DecodeStep const& step) const {
  Norm::Activations activations;
  Tensor const keys = normalize(context, key_norm_, k, activations);
  if (rotates()) {
    positions_->rotate(context, keys, sizes_.head_dim, step.position, false);
  }
  return keys;
}

void write_cache(LayerContext& context, TensorOps& tensor_ops, Tensor const& values, CacheRows const& rows,
                 Tensor& cache) {
  std::int64_t const before = cache.empty() ? 0 : cache.dim(0);
  if (before < rows.count) {
    // By half at least, so that growth is rare.
    Tensor const grown = Tensor::allocate(values.dtype(), {std::max(rows.count, before + before / 2), values.dim(1)});
    if (before > 0) {
      tensor_ops.copy(context.execution, cache, grown.rows(0, before));
    }
    cache = grown;
  }
  tensor_ops.copy_rows(context.execution, values, Tensor(), cache, rows.written);
}

Tensor take_states(LayerContext& context, TensorOps& tensor_ops, DecodeStep const& step, Tensor const& states,
                   DType dtype, std::int64_t columns) {
  Tensor const taken = context.arena.allocate(dtype, {step.hypotheses(), columns});
  if (step.first) {
    tensor_ops.fill(context.execution, taken, 0);
  } else {
    tensor_ops.gather_rows(context.execution, states, step.previous_state, taken);
  }
  return taken;
}

Tensor AttentionCore::decode(LayerContext& context, Tensor const& q, DecodeKeys const& keys, DecodeStep const& step,
                             Tensor& states) const {
  Norm::Activations activations;
  Tensor const query = normalize(context, query_norm_, q, activations);
  if (rotates()) {
    positions_->rotate(context, query, sizes_.head_dim, step.position, false);
  }
  Tensor const output = context.arena.allocate(q.dtype(), q.shape());
  Tensor const log_sum_exp = context.arena.allocate(statistics_dtype(q.dtype()), {q.dim(0), base_.heads});
  AttentionCall call = this->call(context, query, keys.k, keys.v);
  call.queries = step.queries;
  call.keys = keys.sequences;
  bool const one_each = step.queries.max_length == 1;
  if (has_state()) {
    std::int64_t const key_heads = base_.kv_heads > 0 ? base_.kv_heads : base_.heads;
    std::int64_t const columns = key_heads * sizes_.head_dim * (sizes_.head_dim + 1);
    call.state = take_states(context, *tensor_ops_, step, states, statistics_dtype(q.dtype()), columns);
    call.mask = AttentionMask::bidirectional();
    attention_->forward(context.execution, call, output, log_sum_exp);
    write_cache(context, *tensor_ops_, call.state, step.states, states);
    if (one_each || base_.mask.is(MaskKind::bidirectional)) {
      return output;
    }
    // The state has all tokens of the prompt now; each of them sees only those before it.
    call.state = {};
    call.mask = base_.mask;
  }
  // Only a window hides keys from a newest token, which is the last key, and from those of a prefix.
  if (!call.mask.is_local() && (one_each || call.mask.is(MaskKind::prefix))) {
    call.mask = AttentionMask::bidirectional();
  }
  attention_->forward(context.execution, call, output, log_sum_exp);
  return output;
}

}  // namespace heddle
