#pragma once

#include <deque>
#include <heddle/core/model/model_chunk.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/core/operations/token_ranking.hpp>

namespace heddle {

/// A model of stacks as model.stacks describes them (the encoder-decoder Transformer, by default), or the part of it
/// that one pipeline stage has. Parameters (declared on construction, in the set of `spec`):
///
///   embedding.weight                    tied, joint vocabulary: all embeddings and the output projection
///   STACK.embedding.weight, output.weight      otherwise (tied: no output.weight)
///   STACK.positions.weight              learned positions
///   STACK.layers.I.SUBLAYER.…           see ResidualStack; STACK is encoder or decoder
///
/// dist's Pipeline trains a model of several stages; encoding and decoding pass from stage to stage here.
class Model {
 public:
  /// The whole model on one stage. name, side and encoder_side of `spec` are not read. Throws ConfigError where a layer
  /// does not declare a way of computing that `spec.parallel` or the execution space asks for.
  Model(LayerSpec const& spec, LayerRegistry const& layers, VocabularySizes const& vocabulary);
  /// This rank's parts of it. `plan` has as many stages as the mesh.
  Model(LayerSpec const& spec, LayerRegistry const& layers, VocabularySizes const& vocabulary,
        PipelinePlan const& plan);

  std::deque<ModelChunk> const& parts() const { return parts_; }
  /// Notifies of the layers of every part, see ModelChunk::observe. The observer must outlive the model.
  void observe(WorkObserver* observer) {
    for (ModelChunk& part : parts_) {
      part.observe(observer);
    }
  }

  /// See ModelChunk::set_teachers. Only on the stage that ends the model.
  void set_teachers(std::vector<Teacher const*> teachers, double weight) {
    parts_.back().set_teachers(std::move(teachers), weight);
  }

  /// One micro-batch, forward and backward; parameter gradients +=. Everything taken from the arena is released. One
  /// stage only; collective over the tensor and context groups.
  LossSums forward_backward(LayerContext& context, OutputLoss::Training training) const;
  /// The loss without gradients; otherwise as forward_backward.
  LossSums forward(LayerContext& context, double label_smoothing, double z_loss = 0) const;
  /// The negative log-likelihood of each row's target token, 0 where there is none, in the order of the pack's target
  /// rows. Otherwise as forward.
  std::vector<double> token_losses(LayerContext& context) const;
  /// logits [target tokens, this rank's part of the vocabulary] of the whole pack, from the arena: for tests and small
  /// inputs. Otherwise as forward_backward.
  Tensor logits(LayerContext& context) const;

  /// The stack before the last over the pack → encoder output [its tokens, its d_model] on every stage, from the arena;
  /// empty for a decoder-only or encoder-only model. Collective over the tensor and pipeline groups, like decode.
  Tensor encode(LayerContext& context) const;
  std::vector<DecodeCache> make_caches() const;
  /// A step's new tokens, hypothesis after hypothesis.
  struct DecodeTokens {
    TokenIds ids;
    TokenRows rows;  ///< their positions
    Tensor newest;   ///< int32 [hypotheses]: the row of each hypothesis's last token; read in a first step only
  };
  /// → logits [hypotheses, this rank's part of the vocabulary] after the last token of each hypothesis on the stage
  /// that ends the model and an empty tensor elsewhere, from the arena. `encoder_output` is encode's result for the
  /// sentences of a first step, and else empty. With `outputs` there are only the logits of its tokens.
  Tensor decode(LayerContext& context, DecodeTokens const& tokens, Tensor const& encoder_output, DecodeStep const& step,
                std::vector<DecodeCache>& caches, OutputSelection const* outputs = nullptr) const;
  /// Selects the tokens with these ids, int32 [a multiple of OutputSelection::block], for `decode`, which reads the
  /// selection. One stage and one tensor rank only.
  void select_outputs(LayerContext& context, Tensor const& ids, OutputSelection& selection) const {
    only_part().select_outputs(context, ids, selection);
  }

  /// Whether a stack precedes the last one, which attends to its output. A model without an encoder output continues
  /// prompts.
  bool has_encoder_output() const { return stacks_ > 1; }
  /// Whether its samples have prefixes (ModelDescription::needs_prefixes). The prompts are then prefixes.
  bool needs_prefixes() const { return needs_prefixes_; }
  std::optional<std::string> const& no_generation_reason() const { return no_generation_reason_; }

  /// The number of tokens that the model chooses from when it generates.
  std::int64_t target_vocabulary() const { return target_vocabulary_; }
  /// The stage whose decode gives the logits, and the token of the first column there.
  int last_stage() const { return pipeline_.size() - 1; }
  std::int64_t first_logit() const { return parts_.back().first_logit(); }
  /// Ranks the logits that decode gives.
  TokenRanking& token_ranking() const { return *token_ranking_; }
  TensorOps& tensor_ops() const { return *tensor_ops_; }
  Communicator const& pipeline() const { return pipeline_; }
  Communicator const& tensor() const { return tensor_; }

 private:
  /// A part and its layers of one stack; null if this stage has none.
  struct Held {
    ModelChunk const* part = nullptr;
    ModelChunk::Stack const* stack = nullptr;
  };
  Model(LayerSpec const& spec, LayerRegistry const& layers, VocabularySizes const& vocabulary,
        ModelDescription const& description, PipelinePlan const& plan);
  ModelChunk const& only_part() const;
  Held held(std::size_t stack) const;

  Communicator pipeline_;
  Communicator tensor_;
  std::size_t stacks_;  ///< number of stacks of the model
  bool needs_prefixes_;
  std::optional<std::string> no_generation_reason_;
  std::int64_t target_vocabulary_;
  int encoder_stage_ = 0;  ///< where the stack before the last ends
  Side encoder_side_ = Side::source;
  std::int64_t encoder_width_ = 0;
  std::int64_t d_model_;  ///< of the last stack
  DType dtype_;
  std::shared_ptr<TensorOps> tensor_ops_;
  std::shared_ptr<TokenRanking> token_ranking_;
  std::deque<ModelChunk> parts_;
};

}  // namespace heddle
