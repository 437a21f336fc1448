#include <heddle/core/base/error.hpp>
#include <heddle/core/base/index_range.hpp>
#include <heddle/core/model/model.hpp>
#include <heddle/core/tensor/doubles.hpp>

namespace heddle {

namespace {

PipelinePlan one_stage(ModelDescription const& description) {
  return {{{IndexRange{0, description.layers()}}}};
}

int find_stage(PipelinePlan const& plan, ModelDescription const& description, std::size_t stack) {
  for (int stage = 0; stage < plan.virtual_stages(); ++stage) {
    if (description.has_exit(stack, plan.layers(stage))) {
      return stage % plan.stages();
    }
  }
  throw Error("no pipeline stage has the last layer of the {}", description.stacks[stack].name);
}

/// Layers never compute in a way that they do not declare, whoever builds the model.
void require_declared(ModelDescription const& description, ParallelState const& parallel) {
  auto const use = [&](Grid grid) {
    return LayerUse{.tensor = parallel.of(grid).tensor.size(),
                    .context = parallel.of(grid).context.size(),
                    .context_mode = parallel.context_mode,
                    .sequence_parallel = parallel.sequence_parallel,
                    .devices = kernel_memory_space() == MemorySpace::device};
  };
  if (auto const reason = description.unsupported_reason(use(Grid::encoder), use(Grid::decoder))) {
    throw ConfigError(*reason);
  }
}

/// For one micro-batch, from the arena.
Tensor zeroed_loss_sums(LayerContext& context, TensorOps& operations) {
  Tensor const sums = context.arena.allocate(DType::float64, {1, SoftmaxCrossEntropy::sums_size});
  operations.fill(context.execution, sums, 0);
  return sums;
}

}  // namespace

Model::Model(LayerSpec const& spec, LayerRegistry const& layers, VocabularySizes const& vocabulary)
    : Model(spec, layers, vocabulary, one_stage(describe_model(spec.model, layers))) {}

Model::Model(LayerSpec const& spec, LayerRegistry const& layers, VocabularySizes const& vocabulary,
             PipelinePlan const& plan)
    : Model(spec, layers, vocabulary, describe_model(spec.model, layers), plan) {}

Model::Model(LayerSpec const& spec, LayerRegistry const& layers, VocabularySizes const& vocabulary,
             ModelDescription const& description, PipelinePlan const& plan)
    : pipeline_(spec.parallel.pipeline),
      tensor_(spec.parallel.tensor),
      stacks_(description.stacks.size()),
      needs_prefixes_(description.needs_prefixes()),
      no_generation_reason_(description.no_generation_reason()),
      target_vocabulary_(vocabulary.target),
      d_model_(description.stacks.back().keys->d_model),
      dtype_(spec.dtype),
      tensor_ops_(spec.kernels.select<TensorOps>({spec.dtype})),
      token_ranking_(spec.kernels.select<TokenRanking>(
          {statistics_dtype(spec.dtype), share(vocabulary.target, tensor_.rank(), tensor_.size()).count()})) {
  require_declared(description, spec.parallel);
  if (plan.stages() != pipeline_.size()) {
    throw Error("a plan of {} pipeline stages for {} ranks", plan.stages(), pipeline_.size());
  }
  if (stacks_ > 1) {
    encoder_stage_ = find_stage(plan, description, stacks_ - 2);
    encoder_side_ = description.stacks[stacks_ - 2].side;
    encoder_width_ = description.stacks[stacks_ - 2].keys->d_model;
  }
  for (IndexRange const& range : plan.parts[static_cast<std::size_t>(pipeline_.rank())]) {
    parts_.emplace_back(spec, layers, description, vocabulary, plan, range);
  }
}

Model::Held Model::held(std::size_t stack) const {
  for (ModelChunk const& part : parts_) {
    if (ModelChunk::Stack const* const found = part.stack(stack)) {
      return {&part, found};
    }
  }
  return {};
}

ModelChunk const& Model::only_part() const {
  if (pipeline_.size() > 1) {
    throw Error("a model of several pipeline stages is trained by Pipeline");
  }
  return parts_.front();
}

LossSums Model::forward_backward(LayerContext& context, OutputLoss::Training training) const {
  ArenaScope const scope(context.arena);
  training.sums = zeroed_loss_sums(context, *tensor_ops_);
  Saved saved;
  only_part().forward(context, {}, saved, training);
  only_part().backward(context, {}, saved);
  return fetch_loss_sums(training.sums).front();
}

LossSums Model::forward(LayerContext& context, double label_smoothing, double z_loss) const {
  ArenaScope const scope(context.arena);
  Tensor const sums = zeroed_loss_sums(context, *tensor_ops_);
  Saved saved;
  only_part().forward(context, {}, saved, {label_smoothing, 0, sums, z_loss});
  return fetch_loss_sums(sums).front();
}

std::vector<double> Model::token_losses(LayerContext& context) const {
  ArenaScope const scope(context.arena);
  Tensor const losses = context.arena.allocate(statistics_dtype(dtype_), {only_part().output_rows(context.pack), 2});
  Saved saved;
  only_part().forward(context, {}, saved, {.scale = 0, .row_losses = losses});
  std::vector<double> const both = to_doubles(losses);
  std::vector<double> plain;
  for (std::size_t row = 1; row < both.size(); row += 2) {
    plain.push_back(both[row]);
  }
  return plain;
}

Tensor Model::logits(LayerContext& context) const {
  Saved saved;
  HiddenStates const stream = only_part().forward(context, {}, saved, {0, 0});
  return only_part().logits(context, stream.hidden);
}

Tensor Model::encode(LayerContext& context) const {
  if (stacks_ == 1) {
    return {};
  }
  auto const [part, stack] = held(stacks_ - 2);
  if (pipeline_.size() == 1) {
    return part->encode(context, *stack, {});
  }
  Tensor const encoder_output =
      context.arena.allocate(dtype_, {context.pack.rows(encoder_side_).tokens, encoder_width_});
  if (part != nullptr) {
    HiddenStates const input = part->allocate_input(context);
    if (!stack->begins) {
      pipeline_.receive(input.hidden, pipeline_.rank() - 1);
    }
    Tensor const hidden = part->encode(context, *stack, input.hidden);
    if (stack->ends) {
      tensor_ops_->copy(context.execution, hidden, encoder_output);
    } else {
      pipeline_.send(hidden, pipeline_.rank() + 1);
    }
  }
  pipeline_.broadcast(encoder_output, encoder_stage_);
  return encoder_output;
}

std::vector<DecodeCache> Model::make_caches() const {
  auto const [part, stack] = held(stacks_ - 1);
  return stack != nullptr ? stack->layers.make_caches() : std::vector<DecodeCache>();
}

Tensor Model::decode(LayerContext& context, DecodeTokens const& tokens, Tensor const& encoder_output,
                     DecodeStep const& step, std::vector<DecodeCache>& caches, OutputSelection const* outputs) const {
  auto const [part, stack] = held(stacks_ - 1);
  if (part == nullptr) {
    return {};
  }
  Tensor hidden;
  if (!stack->begins) {
    hidden = context.arena.allocate(dtype_, {tokens.rows.tokens, d_model_});
    pipeline_.receive(hidden, pipeline_.rank() - 1);
  }
  hidden = part->decode(context, *stack, {tokens.ids, tokens.rows, {hidden, encoder_output}}, step, caches);
  if (part->ends_model()) {
    if (step.first) {
      Tensor const newest = context.arena.allocate(dtype_, {step.hypotheses(), d_model_});
      tensor_ops_->gather_rows(context.execution, hidden, tokens.newest, newest);
      hidden = newest;
    }
    return outputs != nullptr ? part->logits(context, hidden, *outputs) : part->logits(context, hidden);
  }
  pipeline_.send(hidden, pipeline_.rank() + 1);
  return {};
}

}  // namespace heddle
