#include <algorithm>
#include <atomic>
#include <heddle/core/base/activation_functions.hpp>
#include <heddle/core/base/index_range.hpp>
#include <heddle/core/layers/output_loss.hpp>

namespace heddle {

namespace {

/// The number of tokens whose logits exist at once on the host: few enough to stay in cache, and enough for an
/// efficient multiplication.
constexpr std::int64_t host_chunk_tokens = 256;

/// The version of a selection, unique in the process: its memory may have been another one's.
std::uint64_t next_version() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

}  // namespace

LossSums& LossSums::operator+=(LossSums const& more) {
  smoothed += more.smoothed;
  negative_log_likelihood += more.negative_log_likelihood;
  tokens += more.tokens;
  correct += more.correct;
  return *this;
}

std::int64_t OutputLoss::device_chunk_tokens(std::int64_t vocabulary, int ranks, DType dtype) {
  constexpr std::int64_t bytes = std::int64_t{512} << 20;
  std::int64_t const columns = (vocabulary + ranks - 1) / ranks;
  std::int64_t const row_bytes = std::max<std::int64_t>(1, columns * static_cast<std::int64_t>(size_of(dtype)));
  return std::max(host_chunk_tokens, bytes / row_bytes / host_chunk_tokens * host_chunk_tokens);
}

std::int64_t OutputLoss::chunk_tokens(std::int64_t vocabulary, int ranks, DType dtype) {
  return kernel_memory_space() == MemorySpace::host ? host_chunk_tokens : device_chunk_tokens(vocabulary, ranks, dtype);
}

std::vector<LossSums> fetch_loss_sums(Tensor const& sums) {
  auto const host = to_host<double>(sums);
  std::vector<LossSums> fetched;
  for (std::size_t place = 0; place < host.size(); place += SoftmaxCrossEntropy::sums_size) {
    fetched.push_back({host[place], host[place + 1], static_cast<std::int64_t>(host[place + 2]),
                       static_cast<std::int64_t>(host[place + 3])});
  }
  return fetched;
}

OutputTransform::OutputTransform(LayerSpec const& spec)
    : function_(function_of_activation(spec.model.activation)),
      projection_(spec.named("output.transform"), {spec.model.d_model, spec.model.d_model}, Linear::Split::none),
      activation_(spec.kernels.select<Activation>({spec.dtype, function_})),
      norm_(Norm::of_stream(spec, "output.norm")),
      tensor_ops_(spec.kernels.select<TensorOps>({spec.dtype})) {}

Tensor OutputTransform::forward(LayerContext& context, Tensor const& x, Activations& activations) const {
  activations.input = x;
  activations.projected = projection_.forward(context, x);
  activations.activated = context.arena.allocate(x.dtype(), x.shape());
  activation_->forward(context.execution, {function_, activations.projected}, activations.activated);
  activations.norm = norm_.forward(context, {activations.activated});
  return activations.norm.output.normalized;
}

void OutputTransform::backward(LayerContext& context, Tensor const& grad, Activations const& activations) const {
  ArenaScope const scope(context.arena);
  norm_.backward(context, activations.norm, {.normalized = grad, .residual = grad});
  ActivationCall call{function_, activations.projected};
  call.output = activations.activated;
  activation_->backward(context.execution, call, grad, {.input = grad});
  tensor_ops_->copy(context.execution, projection_.backward(context, grad, activations.input), grad);
}

OutputLoss::OutputLoss(LayerSpec const& spec, Parameter& table)
    : tensor_(spec.parallel.tensor),
      region_(spec.parallel, spec.side),
      table_(table),
      cap_(spec.model.logit_cap),
      chunk_tokens_(chunk_tokens(table.global_shape()[0], tensor_.size(), spec.dtype)),
      gemm_(spec.kernels.select<Gemm>({.dtype = spec.dtype,
                                       .b_dtype = table.value_dtype(spec.dtype),
                                       .output_dtype = spec.dtype,
                                       .m = chunk_tokens_,
                                       .n = table.local_shape[0],
                                       .k = spec.model.d_model,
                                       .transpose_b = true,
                                       .bias = spec.model.output_bias})),
      tensor_ops_(spec.kernels.select<TensorOps>({spec.dtype})),
      cross_entropy_(spec.kernels.select<SoftmaxCrossEntropy>({.dtype = spec.dtype,
                                                               .local_vocabulary = table.local_shape[0],
                                                               .global_vocabulary = table.global_shape()[0]})),
      divergence_(spec.kernels.select<Divergence>({spec.dtype, table.local_shape[0]})) {
  spec.parameters.add_use(table_);
  if (spec.model.output_transform) {
    transform_.emplace(spec);
  }
  if (spec.model.output_bias) {
    bias_ = &spec.parameters.declare({.name = "output.bias",
                                      .placement = {{table.global_shape()[0]}, Placement::sharded_along(0)},
                                      .initializer = Initializer::zeros()});
  }
}

Tensor OutputLoss::transformed(LayerContext& context, Tensor const& hidden) const {
  OutputTransform::Activations activations;
  return transform_ ? transform_->forward(context, hidden, activations) : hidden;
}

Tensor OutputLoss::logits(LayerContext& context, Tensor const& hidden) const {
  return logits(context, transformed(context, hidden), statistics_dtype(hidden.dtype()));
}

Tensor OutputLoss::logits(LayerContext& context, Tensor const& hidden, OutputSelection const& selection) const {
  Tensor const input = transformed(context, hidden);
  Tensor const logits = context.arena.allocate(statistics_dtype(hidden.dtype()), {hidden.dim(0), selection.tokens});
  for (std::int64_t begin = 0; begin < selection.tokens; begin += OutputSelection::block) {
    ArenaScope const scope(context.arena);
    // Rows without gaps: some implementations of the product need them for packed weights.
    Tensor const part = context.arena.allocate(logits.dtype(), {hidden.dim(0), OutputSelection::block});
    gemm_->multiply(context.execution,
                    {.a = input,
                     .b = selection.table.rows(begin, OutputSelection::block),
                     .c = part,
                     .bias = selection.bias.empty() ? Tensor() : selection.bias.rows(begin, OutputSelection::block),
                     .transpose_b = true,
                     .b_weight = selection.version});
    tensor_ops_->copy(context.execution, part, logits.columns(begin, OutputSelection::block));
  }
  if (cap_ > 0) {
    tensor_ops_->cap(context.execution, logits, cap_);
  }
  return logits;
}

void OutputLoss::select(LayerContext& context, Tensor const& ids, OutputSelection& selection) const {
  std::int64_t const tokens = ids.size();
  if (selection.table.empty() || selection.table.dim(0) < tokens) {
    std::int64_t const rows = rounded_up(tokens + tokens / 4, OutputSelection::block);
    selection.table = Tensor::allocate(table_.value.dtype(), {rows, table_.value.dim(1)});
    if (bias_ != nullptr) {
      selection.bias = Tensor::allocate(bias_->value.dtype(), {rows});
    }
  }
  tensor_ops_->gather_rows(context.execution, table_.value, ids, selection.table.rows(0, tokens));
  if (bias_ != nullptr) {
    tensor_ops_->gather_rows(context.execution, bias_->value.reshaped({bias_->value.size(), 1}), ids,
                             selection.bias.rows(0, tokens).reshaped({tokens, 1}));
  }
  selection.tokens = tokens;
  selection.version = {table_.weight_version().id, next_version()};
}

Tensor OutputLoss::logits(LayerContext& context, Tensor const& hidden, DType dtype) const {
  Tensor const logits = context.arena.allocate(dtype, {hidden.dim(0), table_.value.dim(0)});
  gemm_->multiply(context.execution, {.a = hidden,
                                      .b = table_.value,
                                      .c = logits,
                                      .bias = bias_ != nullptr ? bias_->value : Tensor(),
                                      .transpose_b = true,
                                      .b_weight = table_.weight_version()});
  if (cap_ > 0) {
    tensor_ops_->cap(context.execution, logits, cap_);
  }
  return logits;
}

SoftmaxCrossEntropyCall OutputLoss::call(Tensor const& logits, RowTargets const& targets,
                                         Training const& training) const {
  return {.logits = logits,
          .targets = targets.id,
          .first_token = table_.global_offset(0),
          .global_vocabulary = table_.global_shape()[0],
          .label_smoothing = training.label_smoothing,
          .z_loss = training.z_loss,
          .weights = targets.weight};
}

RowTargets OutputLoss::converted(LayerContext& context, RowTargets const& targets, DType dtype) const {
  if (targets.weight.empty() || targets.weight.dtype() == dtype) {
    return targets;
  }
  Tensor const weight = context.arena.allocate(dtype, targets.weight.shape());
  tensor_ops_->copy(context.execution, targets.weight, weight);
  return {targets.id, weight};
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

void OutputLoss::evaluate(LayerContext& context, Tensor const& hidden, RowTargets const& targets,
                          Training const& training, Tensor const& grad_hidden) const {
  if (!transform_) {
    evaluate_transformed(context, hidden, targets, training, grad_hidden);
    return;
  }
  ArenaScope const scope(context.arena);
  OutputTransform::Activations activations;
  Tensor const transformed = transform_->forward(context, hidden, activations);
  // The gradient of the output takes the memory of the input's, which is computed of it.
  evaluate_transformed(context, transformed, targets, training, grad_hidden);
  if (!grad_hidden.empty()) {
    transform_->backward(context, grad_hidden, activations);
  }
}

void OutputLoss::evaluate_transformed(LayerContext& context, Tensor const& hidden, RowTargets const& targets,
                                      Training const& training, Tensor const& grad_hidden) const {
  ArenaScope const region_scope(context.arena);
  bool const with_gradient = !grad_hidden.empty();
  Tensor const whole = region_.enter(context, hidden);
  Tensor const grad_whole = with_gradient ? region_.partial_of(context, grad_hidden) : Tensor();
  RowTargets const rows = converted(context, targets, statistics_dtype(hidden.dtype()));
  Stream stream{whole, grad_whole, rows};
  for (Teacher const& teacher : training.teachers) {
    Tensor const output = teacher.projection->transformed(context, teacher.hidden);
    stream.teachers.push_back({teacher.projection, teacher.projection->region_.enter(context, output)});
  }
  training.r_drop > 0 ? evaluate_passes(context, stream, training) : evaluate_pass(context, stream, training);
  if (with_gradient) {
    region_.leave(context, grad_whole, grad_hidden);
  }
}

void OutputLoss::evaluate_pass(LayerContext& context, Stream const& stream, Training const& training) const {
  for (std::int64_t begin = 0; begin < stream.hidden.dim(0); begin += chunk_tokens_) {
    ArenaScope const scope(context.arena);
    std::int64_t const count = std::min(chunk_tokens_, stream.hidden.dim(0) - begin);
    Stream const chunk = rows_of(stream, begin, count);
    Tensor const chunk_logits = logits(context, chunk.hidden, chunk.hidden.dtype());
    Training of_chunk = training;
    of_chunk.row_losses = training.row_losses.empty() ? Tensor() : training.row_losses.rows(begin, count);
    evaluate_chunk(context, chunk, call(chunk_logits, chunk.targets, training), of_chunk);
    if (!chunk.grad_hidden.empty()) {
      add_gradients(context, chunk_logits, chunk.hidden, chunk.grad_hidden);
    }
  }
}

OutputLoss::Stream OutputLoss::rows_of(Stream const& stream, std::int64_t begin, std::int64_t count) {
  auto const part = [=](Tensor const& tensor) { return tensor.empty() ? Tensor() : tensor.rows(begin, count); };
  Stream rows{part(stream.hidden), part(stream.grad_hidden), {part(stream.targets.id), part(stream.targets.weight)}};
  for (Teacher const& teacher : stream.teachers) {
    rows.teachers.push_back({teacher.projection, part(teacher.hidden)});
  }
  return rows;
}

void OutputLoss::evaluate_chunk(LayerContext& context, Stream const& chunk, SoftmaxCrossEntropyCall const& call,
                                Training const& training) const {
  bool const with_gradient = !chunk.grad_hidden.empty();
  Tensor const& logits = call.logits;
  Tensor const losses = training.row_losses.empty()
                            ? context.arena.allocate(statistics_dtype(logits.dtype()), {logits.dim(0), 2})
                            : training.row_losses;
  Tensor const capped = with_gradient ? copy_if_capped(context, logits) : Tensor();
  if (with_gradient && !region_.split() && chunk.teachers.empty()) {
    cross_entropy_->losses_and_gradient(context.execution, call, training.scale, losses);
  } else {
    Tensor const chunk_statistics = statistics(context, call);
    cross_entropy_->losses(context.execution, call, chunk_statistics, losses);
    if (with_gradient) {
      Tensor const taught = teach(context, chunk, call, chunk_statistics, training, losses);
      cross_entropy_->gradient(context.execution, call, chunk_statistics, cross_entropy_scale(training));
      if (!taught.empty()) {
        tensor_ops_->add(context.execution, logits, taught);
      }
    } else if (!training.sums.empty()) {
      cross_entropy_->add_correct(context.execution, call, chunk_statistics, training.sums);
    }
  }
  if (!training.sums.empty()) {
    cross_entropy_->add_losses(context.execution, call, losses, training.sums);
  }
  if (!capped.empty()) {
    tensor_ops_->cap_backward(context.execution, capped, logits, cap_);
  }
}

Tensor OutputLoss::copy_if_capped(LayerContext& context, Tensor const& logits) const {
  Tensor const copy = cap_ > 0 ? context.arena.allocate(logits.dtype(), logits.shape()) : Tensor();
  if (!copy.empty()) {
    tensor_ops_->copy(context.execution, logits, copy);
  }
  return copy;
}

double OutputLoss::cross_entropy_scale(Training const& training) {
  return training.scale * (training.teachers.empty() ? 1 : 1 - training.teacher_weight);
}

Tensor OutputLoss::teach(LayerContext& context, Stream const& chunk, SoftmaxCrossEntropyCall const& call,
                         Tensor const& chunk_statistics, Training const& training, Tensor const& losses) const {
  Tensor gradient;
  double const share = training.teacher_weight / static_cast<double>(std::max<std::size_t>(1, chunk.teachers.size()));
  for (Teacher const& teacher : chunk.teachers) {
    SoftmaxCrossEntropyCall of_teacher = call;
    of_teacher.logits = teacher.projection->logits(context, teacher.hidden, call.logits.dtype());
    DivergenceCall const both{.logits = {call.logits, of_teacher.logits},
                              .statistics = {chunk_statistics, statistics(context, of_teacher)},
                              .targets = call.targets,
                              .weights = call.weights};
    Tensor const sums = context.arena.allocate(losses.dtype(), {losses.dim(0), 1});
    divergence_->teach(context.execution, both, share * training.scale, sums);
    if (region_.split()) {
      tensor_.all_reduce(sums);
    }
    double const kept = gradient.empty() ? 1 - training.teacher_weight : 1;
    divergence_->add_taught_losses(context.execution, both, sums, kept, share, losses);
    if (gradient.empty()) {
      gradient = of_teacher.logits;
    } else {
      tensor_ops_->add(context.execution, gradient, of_teacher.logits);
    }
  }
  return gradient;
}

void OutputLoss::evaluate_passes(LayerContext& context, Stream const& stream, Training const& training) const {
  std::int64_t const half = stream.hidden.dim(0) / 2;
  if (2 * half != stream.hidden.dim(0)) {
    throw Error("{} rows are not those of two passes", stream.hidden.dim(0));
  }
  std::int64_t const chunk = std::max<std::int64_t>(1, chunk_tokens_ / 2);
  for (std::int64_t begin = 0; begin < half; begin += chunk) {
    ArenaScope const scope(context.arena);
    std::int64_t const count = std::min(chunk, half - begin);
    std::array<Stream, 2> passes;
    std::array<Tensor, 2> row_losses;
    for (std::size_t pass = 0; pass < 2; ++pass) {
      std::int64_t const first = begin + static_cast<std::int64_t>(pass) * half;
      passes[pass] = rows_of(stream, first, count);
      row_losses[pass] = training.row_losses.empty()
                             ? context.arena.allocate(statistics_dtype(stream.hidden.dtype()), {count, 2})
                             : training.row_losses.rows(first, count);
    }
    evaluate_pairs(context, passes, training, row_losses);
  }
}

void OutputLoss::evaluate_pairs(LayerContext& context, std::array<Stream, 2> const& passes, Training const& training,
                                std::array<Tensor, 2> const& row_losses) const {
  DivergenceCall both{
      .logits = {}, .statistics = {}, .targets = passes[0].targets.id, .weights = passes[0].targets.weight};
  std::array<SoftmaxCrossEntropyCall, 2> calls;
  for (std::size_t pass = 0; pass < 2; ++pass) {
    both.logits[pass] = logits(context, passes[pass].hidden, passes[pass].hidden.dtype());
    calls[pass] = call(both.logits[pass], passes[pass].targets, training);
    both.statistics[pass] = statistics(context, calls[pass]);
    cross_entropy_->losses(context.execution, calls[pass], both.statistics[pass], row_losses[pass]);
  }
  bool const with_gradient = !passes[0].grad_hidden.empty();
  std::array<Tensor, 2> taught;
  for (std::size_t pass = 0; pass < 2 && with_gradient; ++pass) {
    taught[pass] = teach(context, passes[pass], calls[pass], both.statistics[pass], training, row_losses[pass]);
  }
  Tensor const sums = context.arena.allocate(row_losses[0].dtype(), {row_losses[0].dim(0), 2});
  divergence_->forward(context.execution, both, sums);
  if (region_.split()) {
    tensor_.all_reduce(sums);
  }
  divergence_->add_losses(context.execution, both, sums, training.r_drop / 2, row_losses);
  std::array<Tensor, 2> gradients;
  if (with_gradient) {
    for (Tensor& gradient : gradients) {
      gradient = context.arena.allocate(both.logits[0].dtype(), both.logits[0].shape());
    }
    divergence_->backward(context.execution, both, sums, training.scale * training.r_drop / 2, gradients);
  }
  for (std::size_t pass = 0; pass < 2; ++pass) {
    if (!training.sums.empty()) {
      cross_entropy_->add_losses(context.execution, calls[pass], row_losses[pass], training.sums);
    }
    if (!with_gradient) {
      continue;
    }
    Tensor const& logits = both.logits[pass];
    Tensor const capped = copy_if_capped(context, logits);
    cross_entropy_->gradient(context.execution, calls[pass], both.statistics[pass], cross_entropy_scale(training));
    tensor_ops_->add(context.execution, logits, gradients[pass]);
    if (!taught[pass].empty()) {
      tensor_ops_->add(context.execution, logits, taught[pass]);
    }
    if (!capped.empty()) {
      tensor_ops_->cap_backward(context.execution, capped, logits, cap_);
    }
    add_gradients(context, logits, passes[pass].hidden, passes[pass].grad_hidden);
  }
}

void OutputLoss::add_gradients(LayerContext& context, Tensor const& grad_logits, Tensor const& hidden,
                               Tensor const& grad_hidden) const {
  gemm_->multiply(
      context.execution,
      {.a = grad_logits, .b = table_.value, .c = grad_hidden, .bias = {}, .b_weight = table_.weight_version()});
  if (!table_.gradient.empty()) {
    gemm_->multiply(
        context.execution,
        {.a = grad_logits, .b = hidden, .c = table_.gradient, .bias = {}, .transpose_a = true, .accumulate = true});
  }
  if (bias_ != nullptr && !bias_->gradient.empty()) {
    tensor_ops_->add_column_sums(context.execution, grad_logits, bias_->gradient);
  }
}

}  // namespace heddle
