#include <algorithm>
#include <array>
#include <heddle/core/layers/output_loss.hpp>
#include <heddle/core/operations/gemm.hpp>
#include <heddle/core/operations/softmax_cross_entropy.hpp>

namespace heddle {

namespace {

/// The number of tokens whose logits exist at once: enough for an efficient multiplication, few enough to stay in
/// cache.
constexpr std::int64_t chunk_tokens = 256;

}  // namespace

OutputLoss::OutputLoss(LayerSpec const& spec, Parameter& table)
    : tensor_(spec.parallel.tensor),
      region_(spec.parallel, spec.side),
      table_(table),
      gemm_(spec.kernels.select<Gemm>({.dtype = spec.dtype,
                                       .b_dtype = parameter_dtype(spec.dtype),
                                       .output_dtype = spec.dtype,
                                       .m = chunk_tokens,
                                       .n = table.local_shape[0],
                                       .k = spec.model.d_model,
                                       .transpose_b = true})),
      cross_entropy_(spec.kernels.select<SoftmaxCrossEntropy>(
          {.dtype = spec.dtype, .local_vocabulary = table.local_shape[0], .global_vocabulary = table.spec.shape[0]})) {
  spec.parameters.add_use(table_);
}

Tensor OutputLoss::logits(LayerContext& context, Tensor const& hidden) const {
  return logits(context, hidden, statistics_dtype(hidden.dtype()));
}

Tensor OutputLoss::logits(LayerContext& context, Tensor const& hidden, DType dtype) const {
  Tensor const logits = context.arena.allocate(dtype, {hidden.dim(0), table_.value.dim(0)});
  gemm_->multiply(context.execution, {.a = hidden,
                                      .b = table_.value,
                                      .c = logits,
                                      .bias = {},
                                      .transpose_b = true,
                                      .b_weight = {table_.id, table_.version}});
  return logits;
}

SoftmaxCrossEntropyCall OutputLoss::call(Tensor const& logits, Tensor const& targets, double label_smoothing) const {
  return {.logits = logits,
          .targets = targets,
          .first_token = table_.shard_begin,
          .global_vocabulary = table_.spec.shape[0],
          .label_smoothing = label_smoothing};
}

Tensor OutputLoss::statistics(LayerContext& context, SoftmaxCrossEntropyCall const& call) const {
  std::int64_t const tokens = call.logits.dim(0);
  DType const dtype = statistics_dtype(call.logits.dtype());
  Tensor const own = context.arena.allocate(dtype, {tokens, SoftmaxCrossEntropy::statistics_columns});
  cross_entropy_->statistics(context.execution, call, own);
  if (!region_.split()) {
    return own;
  }
  Tensor const parts = context.arena.allocate(dtype, {tensor_.size(), tokens, SoftmaxCrossEntropy::statistics_columns});
  tensor_.all_gather(own, parts);
  cross_entropy_->combine(context.execution, parts, own);
  return own;
}

LossSums OutputLoss::evaluate(LayerContext& context, Tensor const& hidden, Tensor const& targets,
                              Training const& training, Tensor const& grad_hidden) const {
  ArenaScope const region_scope(context.arena);
  Tensor const sums = context.arena.allocate(DType::float64, {SoftmaxCrossEntropy::sums_size});
  copy_from_host(sums, std::array<double, SoftmaxCrossEntropy::sums_size>{}.data());
  Tensor const whole = region_.enter(context, hidden);
  Tensor const grad_whole = grad_hidden.empty() ? Tensor() : region_.partial_of(context, grad_hidden);
  for (std::int64_t begin = 0; begin < whole.dim(0); begin += chunk_tokens) {
    ArenaScope const scope(context.arena);
    std::int64_t const count = std::min(chunk_tokens, whole.dim(0) - begin);
    Tensor const chunk = whole.rows(begin, count);
    Tensor const chunk_logits = logits(context, chunk, chunk.dtype());
    auto const chunk_call = call(chunk_logits, targets.rows(begin, count), training.label_smoothing);
    Tensor const losses = context.arena.allocate(statistics_dtype(chunk_logits.dtype()), {count, 2});
    bool const with_gradient = !grad_hidden.empty();
    if (with_gradient && !region_.split()) {
      cross_entropy_->losses_and_gradient(context.execution, chunk_call, training.scale, losses);
    } else {
      Tensor const chunk_statistics = statistics(context, chunk_call);
      cross_entropy_->losses(context.execution, chunk_call, chunk_statistics, losses);
      if (with_gradient) {
        cross_entropy_->gradient(context.execution, chunk_call, chunk_statistics, training.scale);
      }
    }
    cross_entropy_->add_losses(context.execution, chunk_call, losses, sums);
    if (!with_gradient) {
      continue;
    }
    gemm_->multiply(context.execution, {.a = chunk_logits,
                                        .b = table_.value,
                                        .c = grad_whole.rows(begin, count),
                                        .bias = {},
                                        .b_weight = {table_.id, table_.version}});
    gemm_->multiply(
        context.execution,
        {.a = chunk_logits, .b = chunk, .c = table_.gradient, .bias = {}, .transpose_a = true, .accumulate = true});
  }
  if (!grad_hidden.empty()) {
    region_.leave(context, grad_whole, grad_hidden);
    context.uses_done(std::array<Parameter const*, 1>{&table_});
  }
  auto const fetched = to_host<double>(sums);
  return {fetched[0], fetched[1], static_cast<std::int64_t>(fetched[2])};
}

}  // namespace heddle
