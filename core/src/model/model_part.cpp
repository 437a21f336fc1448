#include <algorithm>
#include <array>
#include <cmath>
#include <heddle/core/model/model_part.hpp>
#include <heddle/core/operations/tensor_ops.hpp>

namespace heddle {

namespace {

struct Table {
  std::string name;
  std::int64_t size = 0;
};

Table table_of(TableUse use, ModelConfig const& model, VocabularySizes const& vocabulary) {
  if (model.tie_embeddings && vocabulary.joint) {
    return {"embedding.weight", vocabulary.target};
  }
  switch (use) {
    case TableUse::source:
      return {"encoder.embedding.weight", vocabulary.source};
    case TableUse::output:
      return {model.tie_embeddings ? "decoder.embedding.weight" : "output.weight", vocabulary.target};
    case TableUse::target:
      break;
  }
  return {"decoder.embedding.weight", vocabulary.target};
}

bool uses(TableUse use, IndexRange const& layers, ModelConfig const& model) {
  switch (use) {
    case TableUse::source:
      return layers.begin == 0;
    case TableUse::target:
      return layers.begin <= model.encoder_layers && layers.end > model.encoder_layers;
    case TableUse::output:
      break;
  }
  return layers.end == model.encoder_layers + model.decoder_layers;
}

/// The tables that a part needs, each declared by the first who asks for it on this rank.
class Tables {
 public:
  Tables(LayerSpec const& spec, VocabularySizes const& vocabulary, PipelinePlan const& plan, IndexRange const& layers)
      : spec_(spec), vocabulary_(vocabulary), plan_(plan) {
    for (TableUse const use : all_uses) {
      if (uses(use, layers, spec.model)) {
        tables_[static_cast<std::size_t>(use)] = &declared(table_of(use, spec.model, vocabulary));
      }
    }
  }
  Parameter* operator[](TableUse use) const { return tables_[static_cast<std::size_t>(use)]; }

 private:
  static constexpr std::array all_uses{TableUse::source, TableUse::target, TableUse::output};

  std::vector<int> stages_with(std::string const& name) const {
    std::vector<int> stages;
    for (int stage = 0; stage < plan_.stages(); ++stage) {
      auto const& parts = plan_.parts[static_cast<std::size_t>(stage)];
      bool const holds = std::any_of(parts.begin(), parts.end(), [&](IndexRange const& layers) {
        return std::any_of(all_uses.begin(), all_uses.end(), [&](TableUse use) {
          return uses(use, layers, spec_.model) && table_of(use, spec_.model, vocabulary_).name == name;
        });
      });
      if (holds) {
        stages.push_back(stage);
      }
    }
    return stages;
  }

  Parameter& declared(Table const& table) const {
    if (Parameter* const present = spec_.parameters.find(table.name)) {
      return *present;
    }
    double const deviation = 1 / std::sqrt(static_cast<double>(spec_.model.d_model));
    auto stages = stages_with(table.name);
    if (stages.size() == 1) {
      stages.clear();
    }
    return spec_.parameters.reserve(
        {table.name, {table.size, spec_.model.d_model}, Initializer::normal(deviation), {0}, {}, std::move(stages)});
  }

  LayerSpec const& spec_;
  VocabularySizes const& vocabulary_;
  PipelinePlan const& plan_;
  std::array<Parameter*, 3> tables_{};
};

LayerSpec side_spec(LayerSpec const& spec, std::string const& name, Side side) {
  LayerSpec named = spec.named(name);
  named.side = side;
  return named;
}

}  // namespace

ModelPart::ModelPart(LayerSpec const& spec, LayerRegistry const& registry, VocabularySizes const& vocabulary,
                     PipelinePlan const& plan, IndexRange const& layers)
    : layers_(layers),
      encoder_layers_(spec.model.encoder_layers),
      all_layers_(spec.model.encoder_layers + spec.model.decoder_layers),
      d_model_(spec.model.d_model),
      dtype_(spec.dtype),
      tensor_ops_(spec.kernels.select<TensorOps>({spec.dtype})) {
  Tables const tables(spec, vocabulary, plan, layers);
  LayerSpec const encoder = side_spec(spec, "encoder", Side::source);
  LayerSpec const decoder = side_spec(spec, "decoder", Side::target);
  if (begins_encoder()) {
    source_embedding_.emplace(encoder, *tables[TableUse::source]);
  }
  if (has_encoder()) {
    IndexRange const range{layers.begin, std::min(layers.end, encoder_layers_)};
    encoder_.emplace(encoder, registry, ResidualStack::Layers{range, encoder_layers_}, spec.model.encoder_sublayers);
  }
  if (begins_decoder()) {
    target_embedding_.emplace(decoder, *tables[TableUse::target]);
  }
  if (has_decoder()) {
    IndexRange const range{std::max<std::int64_t>(layers.begin - encoder_layers_, 0), layers.end - encoder_layers_};
    decoder_.emplace(decoder, registry, ResidualStack::Layers{range, spec.model.decoder_layers},
                     spec.model.decoder_sublayers);
  }
  if (layers.end == all_layers_) {
    output_.emplace(decoder, *tables[TableUse::output]);
  }
}

namespace {

struct Activations {
  Saved encoder;
  Saved decoder;
  Tensor grad_hidden;  ///< of the last layer's output, from the loss
};

}  // namespace

ModelPart::Output ModelPart::forward(LayerContext& context, HiddenStates const& input, Saved& saved,
                                     OutputLoss::Training const& training) const {
  Pack const& pack = context.pack;
  Activations activations;
  HiddenStates stream = input;
  if (encoder_) {
    stream.hidden = encode(context, input.hidden, activations.encoder);
    if (ends_encoder()) {
      stream = {Tensor(), stream.hidden};
    }
  }
  if (target_embedding_) {
    stream.hidden = target_embedding_->forward(context, pack.target_input, pack.target_rows);
  }
  if (decoder_) {
    stream = decoder_->forward(context, stream, activations.decoder);
  }
  LossSums loss;
  if (output_) {
    if (training.scale != 0) {
      activations.grad_hidden = context.arena.allocate(stream.hidden.dtype(), stream.hidden.shape());
    }
    loss = output_->visit(context, stream.hidden, pack.target_output.id, training, activations.grad_hidden);
  }
  saved.keep(std::move(activations));
  return {output_ ? HiddenStates{stream.hidden, Tensor()} : stream, loss};
}

HiddenStates ModelPart::backward(LayerContext& context, HiddenStates const& grad_output, Saved const& saved) const {
  auto const& activations = saved.get<Activations>();
  Pack const& pack = context.pack;
  HiddenStates grad = grad_output;
  if (output_) {
    grad.hidden = activations.grad_hidden;
    std::int64_t const rows = TensorRegion::stream_rows(context, pack.source_rows.tokens);
    grad.memory = context.arena.allocate(dtype_, {rows, d_model_});
    tensor_ops_->fill(context.execution, grad.memory, 0);
  }
  if (decoder_) {
    grad = decoder_->backward(context, grad, activations.decoder);
  }
  if (target_embedding_) {
    target_embedding_->backward(context, pack.target_input, pack.target_rows, grad.hidden);
    grad.hidden = Tensor();
  }
  if (encoder_) {
    if (ends_encoder()) {
      grad = {grad.memory, Tensor()};
    }
    grad = encoder_->backward(context, grad, activations.encoder);
  }
  if (source_embedding_) {
    source_embedding_->backward(context, pack.source, pack.source_rows, grad.hidden);
    grad = {};
  }
  return grad;
}

HiddenStates ModelPart::allocate_boundary(LayerContext& context, std::int64_t layer) const {
  auto const allocate = [&](Side side) {
    std::int64_t const rows = TensorRegion::stream_rows(context, context.pack.rows(side).tokens);
    return context.arena.allocate(dtype_, {rows, d_model_});
  };
  HiddenStates stream;
  if (layer > 0 && layer < encoder_layers_) {
    stream.hidden = allocate(Side::source);
  } else if (layer > encoder_layers_ && layer < all_layers_) {
    stream.hidden = allocate(Side::target);
  }
  if (layer >= encoder_layers_ && layer < all_layers_) {
    stream.memory = allocate(Side::source);
  }
  return stream;
}

Tensor ModelPart::encode(LayerContext& context, Tensor const& hidden, Saved& saved) const {
  Tensor const input =
      source_embedding_ ? source_embedding_->forward(context, context.pack.source, context.pack.source_rows) : hidden;
  return encoder_->forward(context, {input, {}}, saved).hidden;
}

Tensor ModelPart::decode(LayerContext& context, TokenIds const& tokens, TokenRows const& rows,
                         HiddenStates const& stream, DecodeStep const& step, std::vector<DecodeCache>& caches) const {
  Tensor const hidden = target_embedding_ ? target_embedding_->forward(context, tokens, rows) : stream.hidden;
  return decoder_->decode(context, {hidden, stream.memory}, step, caches).hidden;
}

std::vector<DecodeCache> ModelPart::make_caches() const {
  return decoder_ ? decoder_->make_caches() : std::vector<DecodeCache>();
}

void ModelPart::reorder(LayerContext& context, Tensor const& parents, DecodeStep const& step,
                        std::vector<DecodeCache>& caches) const {
  if (decoder_) {
    decoder_->reorder(context, parents, step, caches);
  }
}

}  // namespace heddle
