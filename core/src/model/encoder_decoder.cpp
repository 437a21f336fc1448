#include <fmt/format.h>

#include <heddle/core/base/error.hpp>
#include <heddle/core/model/encoder_decoder.hpp>
#include <heddle/core/operations/tensor_ops.hpp>

namespace heddle {

namespace {

PipelinePlan one_stage(ModelConfig const& model) {
  return {{{IndexRange{0, model.encoder_layers + model.decoder_layers}}}};
}

/// The stage that holds the encoder's last layer.
int find_memory_stage(PipelinePlan const& plan, std::int64_t encoder_layers) {
  for (int stage = 0; stage < plan.virtual_stages(); ++stage) {
    IndexRange const& layers = plan.layers(stage);
    if (layers.begin < encoder_layers && layers.end >= encoder_layers) {
      return stage % plan.stages();
    }
  }
  throw Error("no pipeline stage has the encoder's last layer");
}

}  // namespace

EncoderDecoder::EncoderDecoder(LayerSpec const& spec, LayerRegistry const& layers, VocabularySizes const& vocabulary)
    : EncoderDecoder(spec, layers, vocabulary, one_stage(spec.model)) {}

EncoderDecoder::EncoderDecoder(LayerSpec const& spec, LayerRegistry const& layers, VocabularySizes const& vocabulary,
                               PipelinePlan const& plan)
    : pipeline_(spec.parallel.pipeline),
      tensor_(spec.parallel.tensor),
      memory_stage_(find_memory_stage(plan, spec.model.encoder_layers)),
      d_model_(spec.model.d_model),
      dtype_(spec.dtype),
      tensor_ops_(spec.kernels.select<TensorOps>({spec.dtype})) {
  if (plan.stages() != pipeline_.size()) {
    throw Error(fmt::format("a plan of {} pipeline stages for {} ranks", plan.stages(), pipeline_.size()));
  }
  for (IndexRange const& range : plan.parts[static_cast<std::size_t>(pipeline_.rank())]) {
    parts_.emplace_back(spec, layers, vocabulary, plan, range);
  }
}

ModelPart const& EncoderDecoder::only_part() const {
  if (pipeline_.size() > 1) {
    throw Error("a model of several pipeline stages is trained by Pipeline");
  }
  return parts_.front();
}

LossSums EncoderDecoder::forward_backward(LayerContext& context, OutputLoss::Training const& training) const {
  ArenaScope const scope(context.arena);
  Saved saved;
  LossSums const sums = only_part().forward(context, {}, saved, training).loss;
  only_part().backward(context, {}, saved);
  return sums;
}

LossSums EncoderDecoder::forward(LayerContext& context, double label_smoothing) const {
  ArenaScope const scope(context.arena);
  Saved saved;
  return only_part().forward(context, {}, saved, {label_smoothing, 0}).loss;
}

Tensor EncoderDecoder::logits(LayerContext& context) const {
  Saved saved;
  HiddenStates const stream = only_part().forward(context, {}, saved, {0, 0}).stream;
  return only_part().logits(context, stream.hidden);
}

Tensor EncoderDecoder::encode(LayerContext& context) const {
  if (pipeline_.size() == 1) {
    Saved saved;
    return only_part().encode(context, {}, saved);
  }
  Tensor const memory = context.arena.allocate(dtype_, {context.pack.source_rows.tokens, d_model_});
  for (ModelPart const& part : parts_) {
    if (!part.has_encoder()) {
      continue;
    }
    HiddenStates const input = part.allocate_input(context);
    if (!part.begins_encoder()) {
      pipeline_.receive(input.hidden, pipeline_.rank() - 1);
    }
    Saved saved;
    Tensor const hidden = part.encode(context, input.hidden, saved);
    if (part.ends_encoder()) {
      tensor_ops_->copy(context.execution, hidden, memory);
    } else {
      pipeline_.send(hidden, pipeline_.rank() + 1);
    }
  }
  pipeline_.broadcast(memory, memory_stage_);
  return memory;
}

ModelPart const* EncoderDecoder::decoder_part() const {
  for (ModelPart const& part : parts_) {
    if (part.has_decoder()) {
      return &part;
    }
  }
  return nullptr;
}

std::vector<DecodeCache> EncoderDecoder::make_caches() const {
  ModelPart const* const part = decoder_part();
  return part != nullptr ? part->make_caches() : std::vector<DecodeCache>();
}

Tensor EncoderDecoder::decode(LayerContext& context, TokenIds const& tokens, TokenRows const& rows,
                              Tensor const& memory, DecodeStep const& step, std::vector<DecodeCache>& caches) const {
  ModelPart const* const part = decoder_part();
  if (part == nullptr) {
    return {};
  }
  Tensor hidden;
  if (!part->begins_decoder()) {
    hidden = context.arena.allocate(dtype_, {rows.tokens, d_model_});
    pipeline_.receive(hidden, pipeline_.rank() - 1);
  }
  hidden = part->decode(context, tokens, rows, {hidden, memory}, step, caches);
  if (part->ends_decoder()) {
    return part->logits(context, hidden);
  }
  pipeline_.send(hidden, pipeline_.rank() + 1);
  return {};
}

void EncoderDecoder::reorder(LayerContext& context, Tensor const& parents, DecodeStep const& step,
                             std::vector<DecodeCache>& caches) const {
  if (ModelPart const* const part = decoder_part()) {
    part->reorder(context, parents, step, caches);
  }
}

}  // namespace heddle
