#include <algorithm>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/core/layers/registry.hpp>
#include <heddle/core/layers/token_embedding.hpp>
#include <heddle/core/tensor/doubles.hpp>

namespace heddle {

namespace {

Parameter& table_of(LayerSpec const& spec) {
  if (spec.table == nullptr) {
    throw Error("{}: an embedding of tokens needs a table", spec.name);
  }
  return *spec.table;
}

}  // namespace

std::vector<double> sinusoidal_positions(ModelConfig const& model) {
  std::int64_t const length = model.max_length;
  std::int64_t const d_model = model.d_model;
  bool const interleaved = model.position_layout == PairLayout::interleaved;
  bool const paper = model.position_frequencies == PositionFrequencies::paper ||
                     (model.position_frequencies == PositionFrequencies::automatic && interleaved);
  std::int64_t const half = d_model / 2;
  std::int64_t const pairs = interleaved ? d_model - half : half;
  double const steps =
      paper ? static_cast<double>(d_model) / 2 : static_cast<double>(std::max<std::int64_t>(half - 1, 1));
  std::vector<double> host(static_cast<std::size_t>(length * d_model));
  std::vector<double> frequencies;
  for (std::int64_t pair = 0; pair < pairs; ++pair) {
    frequencies.push_back(std::exp(static_cast<double>(pair) * -std::log(10000.0) / steps));
  }
  for (std::int64_t position = 0; position < length; ++position) {
    double* const row = host.data() + position * d_model;
    for (std::int64_t pair = 0; pair < pairs; ++pair) {
      double const angle =
          static_cast<double>(model.first_position + position) * frequencies[static_cast<std::size_t>(pair)];
      row[interleaved ? 2 * pair : pair] = std::sin(angle);
      if (std::int64_t const column = interleaved ? 2 * pair + 1 : half + pair; column < d_model) {
        row[column] = std::cos(angle);
      }
    }
  }
  return host;
}

TokenEmbedding::TokenEmbedding(LayerSpec const& spec)
    : dropout_name_(spec.name + ".embedding_dropout"),
      side_(spec.side),
      dtype_(spec.dtype),
      dropout_(spec.model.dropout),
      scale_(spec.model.scale_embedding ? std::sqrt(static_cast<double>(spec.model.d_model)) : 1),
      region_(spec.parallel, spec.side),
      table_(table_of(spec)),
      embedding_(spec.kernels.select<Embedding>({spec.dtype, table_.value_dtype(spec.dtype), spec.model.d_model})),
      tensor_ops_(spec.kernels.select<TensorOps>({spec.dtype})) {
  spec.parameters.add_use(table_);
  Shape const shape{spec.model.max_length, spec.model.d_model};
  if (spec.model.positions == Positions::learned) {
    double const deviation = 1 / std::sqrt(static_cast<double>(spec.model.d_model));
    learned_positions_ =
        &spec.parameters.declare({spec.name + ".positions.weight", {shape}, Initializer::normal(deviation)});
  } else if (spec.model.positions == Positions::sinusoidal) {
    fixed_positions_ = from_doubles(sinusoidal_positions(spec.model), statistics_dtype(spec.dtype), shape);
  }
  if (spec.model.token_types > 0) {
    double const deviation = 1 / std::sqrt(static_cast<double>(spec.model.d_model));
    token_types_ = &spec.parameters.declare({spec.name + ".token_types.weight",
                                             {{spec.model.token_types, spec.model.d_model}},
                                             Initializer::normal(deviation)});
    zeros_ = Tensor::allocate(DType::int32, {spec.model.max_length});
  }
  if (spec.model.embedding_norm) {
    norm_ = Norm::of_stream(spec, spec.name + ".embedding_norm");
    drop_ = Norm::none(spec, dropout_);
  }
}

std::int64_t TokenEmbedding::types_in(TokenRows const& rows) const {
  bool const two = token_types_ != nullptr && token_types_->value.dim(0) > 1 && !rows.typed_position.empty();
  return two ? 2 : 1;
}

namespace {

/// The rows of one token type in a table of typed positions.
Tensor of_type(Tensor const& typed, std::int64_t type, std::int64_t types) {
  std::int64_t const columns = typed.dim(1);
  return typed.reshaped({typed.dim(0) / types, types * columns}).columns(type * columns, columns);
}

}  // namespace

Tensor TokenEmbedding::positions(LayerContext& context, std::int64_t types) const {
  Tensor const own = learned_positions_ != nullptr ? learned_positions_->value : fixed_positions_;
  if (token_types_ == nullptr) {
    return own;
  }
  Tensor const& table = token_types_->value;
  Tensor const typed = context.arena.allocate(table.dtype(), {types * zeros_.dim(0), table.dim(1)});
  for (std::int64_t type = 0; type < types; ++type) {
    Tensor const part = of_type(typed, type, types);
    tensor_ops_->gather_rows(context.execution, table.rows(type, 1), zeros_, part);
    if (!own.empty()) {
      tensor_ops_->add(context.execution, part, own);
    }
  }
  return typed;
}

void TokenEmbedding::add_positions_gradient(LayerContext& context, Tensor const& grad_positions,
                                            std::int64_t types) const {
  for (std::int64_t type = 0; type < types; ++type) {
    Tensor part = of_type(grad_positions, type, types);
    if (learned_positions_ != nullptr && !learned_positions_->gradient.empty()) {
      tensor_ops_->add(context.execution, learned_positions_->gradient, part);
    }
    if (token_types_->gradient.empty()) {
      continue;
    }
    if (!part.contiguous()) {
      Tensor const copy = context.arena.allocate(part.dtype(), part.shape());
      tensor_ops_->copy(context.execution, part, copy);
      part = copy;
    }
    Tensor const row = token_types_->gradient.rows(type, 1);
    tensor_ops_->add_column_sums(context.execution, part, row.reshaped({row.size()}));
  }
}

EmbeddingCall TokenEmbedding::call(LayerContext& context, TokenIds const& tokens, TokenRows const& rows) const {
  std::int64_t const types = types_in(rows);
  TokenRows placed = rows;
  placed.position = types > 1 ? rows.typed_position : rows.position;
  return {.table = table_.value,
          .positions = positions(context, types),
          .tokens = tokens,
          .rows = placed,
          .first_token = table_.global_offset(0),
          .scale = scale_,
          .dropout = norm_ ? Dropout() : make_dropout(context, dropout_, dropout_name_, side_)};
}

Tensor TokenEmbedding::forward(LayerContext& context, TokenIds const& tokens, TokenRows const& rows,
                               Saved& saved) const {
  Tensor const embedded = embed(context, tokens, rows);
  return norm_ ? normalize(context, embedded, saved) : embedded;
}

Tensor TokenEmbedding::embed(LayerContext& context, TokenIds const& tokens, TokenRows const& rows) const {
  Shape const shape{TensorRegion::stream_rows(context, rows.tokens), table_.value.dim(1)};
  Tensor const output = context.arena.allocate(dtype_, shape);
  ArenaScope const scope(context.arena);
  Tensor const partial = region_.partial_of(context, output);
  // Dropout is linear and the same on all ranks, so it may be applied before the sum.
  EmbeddingCall part = call(context, tokens, rows);
  if (!region_.first()) {
    part.positions = Tensor();
  }
  embedding_->forward(context.execution, part, partial);
  region_.leave(context, partial, output);
  return output;
}

Tensor TokenEmbedding::normalize(LayerContext& context, Tensor const& embedded, Saved& saved) const {
  Activations activations{norm_->forward(context, {embedded}), {}};
  Tensor output = activations.norm.output.normalized;
  Dropout const dropout = make_stream_dropout(context, dropout_, dropout_name_, side_);
  if (dropout.active()) {
    // The operation that drops also adds a residual, of which there is none here.
    Tensor const zeros = context.arena.allocate(output.dtype(), output.shape());
    tensor_ops_->fill(context.execution, zeros, 0);
    activations.dropped = drop_->forward(context, {zeros, output, dropout});
    output = activations.dropped.output.sum;
  }
  saved.keep(std::move(activations));
  return output;
}

Tensor TokenEmbedding::normalize_backward(LayerContext& context, Tensor const& grad_output,
                                          Activations const& activations) const {
  Tensor grad = grad_output;
  if (!activations.dropped.output.sum.empty()) {
    grad = context.arena.allocate(grad_output.dtype(), grad_output.shape());
    drop_->backward(context, activations.dropped, {.sum = grad_output, .residual = grad_output, .branch = grad});
  }
  norm_->backward(context, activations.norm, {.normalized = grad, .residual = grad});
  return grad;
}

void TokenEmbedding::backward(LayerContext& context, Tensor const& grad_output, Saved const& saved) const {
  ArenaScope const scope(context.arena);
  Tensor const grad = norm_ ? normalize_backward(context, grad_output, saved.get<Activations>()) : grad_output;
  Tensor grad_positions = learned_positions_ != nullptr ? learned_positions_->gradient : Tensor();
  std::int64_t const types = types_in(context.pack.rows(side_));
  bool const types_learn = token_types_ != nullptr && !token_types_->gradient.empty();
  bool const typed = types_learn || (types > 1 && !grad_positions.empty());
  if (typed) {  // the sum of the positions' gradients of this call alone
    Tensor const& table = token_types_->value;
    grad_positions = context.arena.allocate(table.dtype(), {types * zeros_.dim(0), table.dim(1)});
    tensor_ops_->fill(context.execution, grad_positions, 0);
  }
  if (!table_.gradient.empty() || !grad_positions.empty()) {
    Pack const& pack = context.pack;
    embedding_->backward(context.execution, call(context, tokens(pack), pack.rows(side_)), region_.enter(context, grad),
                         table_.gradient, grad_positions);
  }
  if (typed) {
    add_positions_gradient(context, grad_positions, types);
  }
}

void register_token_embedding(LayerRegistry& registry) {
  registry.inputs.add<TokenEmbedding>("tokens", {.embeds_tokens = true});
}

}  // namespace heddle
