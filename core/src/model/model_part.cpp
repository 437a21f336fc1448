#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/model/model_part.hpp>
#include <heddle/core/operations/tensor_ops.hpp>

#include "shared_parameters.hpp"

namespace heddle {

namespace {

LayerSpec stack_spec(LayerSpec const& spec, StackDescription const& stack) {
  return {.name = stack.name,
          .side = stack.side,
          .model = *stack.keys,
          .dtype = spec.dtype,
          .kernels = spec.kernels,
          .parallel = spec.parallel,
          .parameters = spec.parameters,
          .encoder_side = stack.encoder_side};
}

/// The tokens that a side's stack embeds.
TokenIds const& input_tokens(Pack const& pack, Side side) {
  return side == Side::source ? pack.source : pack.target_input;
}

/// The tokens that the rows of a side are to predict.
RowTargets const& output_tokens(Pack const& pack, Side side) {
  RowTargets const& targets = side == Side::source ? pack.source_output : pack.target_output;
  if (targets.id.empty()) {
    throw Error("this pack has no tokens to predict for the rows of the model's last stack");
  }
  return targets;
}

struct Activations {
  std::vector<Saved> embeddings;  ///< one per stack
  std::vector<Saved> stacks;
  Tensor grad_hidden;  ///< of the last layer's output, from the loss
};

}  // namespace

ModelPart::ModelPart(LayerSpec const& spec, LayerRegistry const& registry, ModelDescription const& description,
                     VocabularySizes const& vocabulary, PipelinePlan const& plan, IndexRange const& layers)
    : layers_(layers),
      d_model_(spec.model.d_model),
      dtype_(spec.dtype),
      tensor_ops_(spec.kernels.select<TensorOps>({spec.dtype})) {
  SharedParameters const shared(spec, description, vocabulary, plan);
  // Tables are declared before everything else.
  std::vector<Parameter*> embeddings;
  for (std::size_t index = 0; index < description.stacks.size(); ++index) {
    StackDescription const& stack = description.stacks[index];
    extents_.push_back({description.range(index), stack.side, stack.encoder_side});
    embeddings.push_back(description.has_entry(index, layers) ? &shared.embedding(index) : nullptr);
  }
  bool const ends_model = layers.end == description.layers();
  Parameter* const output = ends_model ? &shared.output() : nullptr;
  for (std::size_t index = 0; index < description.stacks.size(); ++index) {
    StackDescription const& stack = description.stacks[index];
    bool const begins = embeddings[index] != nullptr;
    IndexRange const range = description.range_in(index, layers);
    if (!begins && range.count() == 0) {
      continue;
    }
    LayerSpec named = stack_spec(spec, stack);
    named.positions = shared.positions(named, index, range);
    std::optional<TokenEmbedding> embedding;
    if (begins) {
      embedding.emplace(named, *embeddings[index]);
    }
    stacks_.push_back({index, stack.side, stack.encoder_side, begins, description.has_exit(index, layers),
                       std::move(embedding), ResidualStack(named, registry, stack, range), stack.name + ".embedding"});
  }
  if (output != nullptr) {
    output_.emplace(stack_spec(spec, description.stacks.back()), *output);
  }
}

void ModelPart::observe(WorkObserver* observer) {
  observer_ = observer;
  for (Stack& stack : stacks_) {
    stack.layers.observe(observer);
  }
}

HiddenStates ModelPart::forward(LayerContext& context, HiddenStates const& input, Saved& saved,
                                OutputLoss::Training const& training) const {
  Pack const& pack = context.pack;
  auto& activations = saved.renew<Activations>();
  activations.grad_hidden = Tensor();
  activations.embeddings.resize(stacks_.size());
  activations.stacks.resize(stacks_.size());
  HiddenStates stream = input;
  for (std::size_t index = 0; index < stacks_.size(); ++index) {
    Stack const& stack = stacks_[index];
    if (stack.begins) {
      WorkScope const work(observer_, {WorkKind::layer, stack.embedding_name});
      stream.hidden = stack.embedding->forward(context, input_tokens(pack, stack.side), pack.rows(stack.side),
                                               activations.embeddings[index]);
    }
    stream = stack.layers.forward(context, stream, activations.stacks[index]);
    if (stack.ends && stack.index + 1 < extents_.size()) {
      stream = {Tensor(), stream.hidden};
    }
  }
  if (output_) {
    WorkScope const work(observer_, {WorkKind::layer, "output"});
    if (training.scale != 0) {
      activations.grad_hidden = context.arena.allocate(stream.hidden.dtype(), stream.hidden.shape());
    }
    output_->evaluate(context, stream.hidden, output_tokens(pack, extents_.back().side), training,
                      activations.grad_hidden);
  }
  return output_ ? HiddenStates{stream.hidden, Tensor()} : stream;
}

HiddenStates ModelPart::backward(LayerContext& context, HiddenStates const& grad_output, Saved const& saved) const {
  auto const& activations = saved.get<Activations>();
  Pack const& pack = context.pack;
  HiddenStates grad = grad_output;
  if (output_) {
    grad.hidden = activations.grad_hidden;
  }
  for (std::size_t index = stacks_.size(); index-- > 0;) {
    Stack const& stack = stacks_[index];
    if (stack.ends && stack.index + 1 < extents_.size()) {
      grad = {grad.encoder_output, Tensor()};
    }
    if (stack.encoder_side && grad.encoder_output.empty()) {
      std::int64_t const rows = TensorRegion::stream_rows(context, pack.rows(*stack.encoder_side).tokens);
      grad.encoder_output = context.arena.allocate(dtype_, {rows, d_model_});
      tensor_ops_->fill(context.execution, grad.encoder_output, 0);
    }
    grad = stack.layers.backward(context, grad, activations.stacks[index]);
    if (stack.begins) {
      WorkScope const work(observer_, {WorkKind::layer, stack.embedding_name, Direction::backward});
      stack.embedding->backward(context, input_tokens(pack, stack.side), pack.rows(stack.side), grad.hidden,
                                activations.embeddings[index]);
      grad.hidden = Tensor();
    }
  }
  return grad;
}

HiddenStates ModelPart::allocate_boundary(LayerContext& context, std::int64_t layer) const {
  auto const allocate = [&](Side side) {
    std::int64_t const rows = TensorRegion::stream_rows(context, context.pack.rows(side).tokens);
    return context.arena.allocate(dtype_, {rows, d_model_});
  };
  HiddenStates stream;
  for (Extent const& stack : extents_) {
    bool const inside = layer > stack.layers.begin && layer < stack.layers.end;
    bool const before = layer > 0 && layer == stack.layers.begin && stack.layers.count() > 0;
    if (inside) {
      stream.hidden = allocate(stack.side);
    }
    if ((inside || before) && stack.encoder_side) {
      stream.encoder_output = allocate(*stack.encoder_side);
    }
  }
  return stream;
}

ModelPart::Stack const* ModelPart::stack(std::size_t index) const {
  auto const found =
      std::find_if(stacks_.begin(), stacks_.end(), [&](Stack const& stack) { return stack.index == index; });
  return found == stacks_.end() ? nullptr : &*found;
}

Tensor ModelPart::encode(LayerContext& context, Stack const& stack, Tensor const& hidden, Saved& saved) const {
  Pack const& pack = context.pack;
  Saved embedding;
  Tensor const input =
      stack.begins ? stack.embedding->forward(context, input_tokens(pack, stack.side), pack.rows(stack.side), embedding)
                   : hidden;
  return stack.layers.forward(context, {input, {}}, saved).hidden;
}

Tensor ModelPart::decode(LayerContext& context, Stack const& stack, DecodeInput const& input, DecodeStep const& step,
                         std::vector<DecodeCache>& caches) const {
  HiddenStates states = input.previous;
  if (stack.begins) {
    Saved embedding;
    states.hidden = stack.embedding->forward(context, input.tokens, input.rows, embedding);
  }
  return stack.layers.decode(context, states, step, caches).hidden;
}

}  // namespace heddle
