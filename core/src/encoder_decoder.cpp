#include <cmath>
#include <heddle/core/encoder_decoder.hpp>

namespace heddle {

namespace {

LayerSpec side_spec(LayerSpec const& spec, std::string const& name, Side side) {
  LayerSpec named = spec.named(name);
  named.side = side;
  return named;
}

}  // namespace

EncoderDecoder::Tables EncoderDecoder::declare_tables(LayerSpec const& spec, VocabularySizes const& vocabulary) {
  auto const declare = [&](std::string const& name, std::int64_t size) -> Parameter& {
    double const deviation = 1 / std::sqrt(static_cast<double>(spec.model.d_model));
    return spec.parameters.declare({name, {size, spec.model.d_model}, Initializer::normal(deviation), {0}, {}});
  };
  if (spec.model.tie_embeddings && vocabulary.joint) {
    Parameter& table = declare("embedding.weight", vocabulary.target);
    return {table, table, table};
  }
  Parameter& source = declare("encoder.embedding.weight", vocabulary.source);
  Parameter& target = declare("decoder.embedding.weight", vocabulary.target);
  return {source, target, spec.model.tie_embeddings ? target : declare("output.weight", vocabulary.target)};
}

EncoderDecoder::EncoderDecoder(LayerSpec const& spec, LayerRegistry const& layers, VocabularySizes const& vocabulary)
    : tables_(declare_tables(spec, vocabulary)),
      source_embedding_(side_spec(spec, "encoder", Side::source), tables_.source),
      encoder_(side_spec(spec, "encoder", Side::source), layers, spec.model.encoder_layers,
               spec.model.encoder_sublayers),
      target_embedding_(side_spec(spec, "decoder", Side::target), tables_.target),
      decoder_(side_spec(spec, "decoder", Side::target), layers, spec.model.decoder_layers,
               spec.model.decoder_sublayers),
      output_(spec, tables_.output),
      tensor_ops_(spec.kernels.tensor_ops({spec.dtype})) {}

Tensor EncoderDecoder::decode_hidden(Context& context, Saved& encoder_saved, Saved& decoder_saved,
                                     Tensor& memory) const {
  Pack const& pack = context.pack;
  Tensor const source = source_embedding_.forward(context, pack.source, pack.source_rows);
  memory = encoder_.forward(context, {source, {}}, encoder_saved).hidden;
  Tensor const target = target_embedding_.forward(context, pack.target_input, pack.target_rows);
  return decoder_.forward(context, {target, memory}, decoder_saved).hidden;
}

LossSums EncoderDecoder::forward_backward(Context& context, OutputLoss::Training const& training) const {
  ArenaScope const scope(context.arena);
  Saved encoder_saved;
  Saved decoder_saved;
  Tensor memory;
  Tensor const hidden = decode_hidden(context, encoder_saved, decoder_saved, memory);

  Tensor const grad_hidden = context.arena.allocate(hidden.dtype(), hidden.shape());
  LossSums const sums = output_.forward_backward(context, hidden, context.pack.target_output.id, training, grad_hidden);

  Tensor const grad_memory = context.arena.allocate(memory.dtype(), memory.shape());
  tensor_ops_->fill(context.execution, grad_memory, 0);
  Stream const grad_target = decoder_.backward(context, {grad_hidden, grad_memory}, decoder_saved);
  target_embedding_.backward(context, context.pack.target_input, context.pack.target_rows, grad_target.hidden);
  Stream const grad_source = encoder_.backward(context, {grad_memory, {}}, encoder_saved);
  source_embedding_.backward(context, context.pack.source, context.pack.source_rows, grad_source.hidden);
  return sums;
}

LossSums EncoderDecoder::forward(Context& context, double label_smoothing) const {
  ArenaScope const scope(context.arena);
  Saved encoder_saved;
  Saved decoder_saved;
  Tensor memory;
  Tensor const hidden = decode_hidden(context, encoder_saved, decoder_saved, memory);
  return output_.forward(context, hidden, context.pack.target_output.id, label_smoothing);
}

Tensor EncoderDecoder::logits(Context& context) const {
  Saved encoder_saved;
  Saved decoder_saved;
  Tensor memory;
  return output_.logits(context, decode_hidden(context, encoder_saved, decoder_saved, memory));
}

Tensor EncoderDecoder::encode(Context& context) const {
  Saved saved;
  Tensor const source = source_embedding_.forward(context, context.pack.source, context.pack.source_rows);
  return encoder_.forward(context, {source, {}}, saved).hidden;
}

Tensor EncoderDecoder::decode(Context& context, TokenIds const& tokens, TokenRows const& rows, Tensor const& memory,
                              DecodeStep const& step, std::vector<DecodeCache>& caches) const {
  Tensor const embedded = target_embedding_.forward(context, tokens, rows);
  return output_.logits(context, decoder_.decode(context, {embedded, memory}, step, caches).hidden);
}

}  // namespace heddle
