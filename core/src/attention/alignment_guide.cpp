#include <heddle/core/attention/alignment_guide.hpp>

namespace heddle {

double guided_alignment_weight(LayerOptions const& options) {
  return options.number("guided_alignment_weight", 0);
}

AlignmentGuide::AlignmentGuide(LayerSpec const& spec, double weight, std::int64_t head_dim, double scale)
    : queries_(spec.side),
      keys_(*spec.encoder_side),
      weight_(weight),
      head_dim_(head_dim),
      scale_(scale),
      tensor_(spec.parallel.tensor),
      context_(spec.parallel.context),
      operation_(spec.kernels.select<GuidedAlignment>({spec.dtype, head_dim})),
      tensor_ops_(spec.kernels.select<TensorOps>({spec.dtype})) {}

Tensor AlignmentGuide::gather(LayerContext& context, Tensor const& keys) const {
  ContextRows const& rows = context.pack.context(keys_);
  if (rows.shards.empty()) {
    return keys;
  }
  Tensor const whole = context.arena.allocate(keys.dtype(), {rows.whole.tokens, head_dim_});
  ArenaScope const scope(context.arena);
  Tensor const own = context.arena.allocate(keys.dtype(), keys.shape());
  Tensor const shards = context.arena.allocate(keys.dtype(), whole.shape());
  tensor_ops_->copy(context.execution, keys, own);
  context_.all_gather_rows(own, shards, rows.shard_tokens());
  tensor_ops_->gather_rows(context.execution, shards, rows.to_whole, whole);
  return whole;
}

Tensor AlignmentGuide::scatter(LayerContext& context, Tensor const& gradients) const {
  ContextRows const& rows = context.pack.context(keys_);
  if (rows.shards.empty()) {
    return gradients;
  }
  Tensor const shards = context.arena.allocate(gradients.dtype(), gradients.shape());
  Tensor const own = context.arena.allocate(gradients.dtype(), {context.pack.rows(keys_).tokens, head_dim_});
  tensor_ops_->gather_rows(context.execution, gradients, rows.from_whole, shards);
  context_.reduce_scatter_rows(shards, own, rows.shard_tokens());
  return own;
}

AlignmentGuide::Activations AlignmentGuide::forward(LayerContext& context, Tensor const& q, Tensor const& k) const {
  bool const aligned = !context.pack.alignment.begin.empty();
  bool const trains = context.loss_scale != 0;  // memory is planned with packs that are not aligned
  Activations activations;
  if (!trains && (!aligned || context.loss_sums.empty())) {
    return activations;
  }
  Tensor const sum = context.arena.allocate(DType::float64, {1});
  tensor_ops_->fill(context.execution, sum, 0);
  if (tensor_.rank() == 0) {
    ContextRows const& keys = context.pack.context(keys_);
    activations.call = {.q = q.columns(0, head_dim_),
                        .k = gather(context, k.columns(0, head_dim_)),
                        .queries = context.pack.rows(queries_).sequences,
                        .keys = keys.shards.empty() ? context.pack.rows(keys_).sequences : keys.whole.sequences,
                        .scale = scale_,
                        .alignment = context.pack.alignment};
    activations.rows = context.arena.allocate(DType::float64, {q.dim(0), 2});
    if (aligned) {
      operation_->forward(context.execution, activations.call, activations.rows, weight_, sum);
    }
  }
  if (aligned && !context.loss_sums.empty()) {
    if (tensor_.size() > 1) {
      tensor_.all_reduce(sum);  // each tensor rank adds the whole loss
    }
    tensor_ops_->add(context.execution, context.loss_sums.reshaped({context.loss_sums.size()}).rows(0, 1), sum);
  }
  return activations;
}

void AlignmentGuide::backward(LayerContext& context, Activations const& activations, Tensor const& grad_q,
                              Tensor const& grad_k) const {
  GuidedAlignmentCall const& call = activations.call;
  if (activations.rows.empty()) {
    return;
  }
  ArenaScope const scope(context.arena);
  DType const real = statistics_dtype(call.q.dtype());
  Tensor const of_q = context.arena.allocate(real, call.q.shape());
  Tensor const of_k = context.arena.allocate(real, call.k.shape());
  if (call.alignment.begin.empty()) {
    return;
  }
  operation_->backward(context.execution, call, activations.rows, weight_ * context.loss_scale, of_q, of_k);
  add(context, grad_q.columns(0, head_dim_), of_q);
  add(context, grad_k.columns(0, head_dim_), scatter(context, of_k));
}

void AlignmentGuide::add(LayerContext& context, Tensor const& into, Tensor const& gradients) const {
  Tensor added = gradients;
  if (into.dtype() != gradients.dtype()) {
    added = context.arena.allocate(into.dtype(), gradients.shape());
    tensor_ops_->copy(context.execution, gradients, added);
  }
  tensor_ops_->add(context.execution, into, added);
}

}  // namespace heddle
