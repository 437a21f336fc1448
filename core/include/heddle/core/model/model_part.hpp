#pragma once

#include <heddle/core/layers/output_loss.hpp>
#include <heddle/core/layers/residual_stack.hpp>
#include <heddle/core/layers/token_embedding.hpp>
#include <heddle/core/model/pipeline_plan.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <optional>

namespace heddle {

/// Sizes in pieces. `joint`: both sides use one vocabulary, so tied embeddings are one table.
struct VocabularySizes {
  std::int64_t source = 0;
  std::int64_t target = 0;
  bool joint = false;
};

/// The model's tables by what they are used for, and by name: tied ones share a name.
enum class TableUse : std::uint8_t { source, target, output };

/// A contiguous range of the one list of encoder layers, then decoder layers, with the embedding of a side whose first
/// layer it has, and output projection and loss where it has the last. What travels from part to part:
///
///   inside the encoder        hidden: the source's stream
///   between the two           memory: the encoder's output
///   inside the decoder        hidden: the target's stream, and memory
///
/// Every call is collective over the tensor and context groups.
class ModelPart {
 public:
  /// Declares its parameters in the set of `spec`; spec.name and spec.side are not read. `plan` tells which stages
  /// share a table.
  ModelPart(LayerSpec const& spec, LayerRegistry const& registry, VocabularySizes const& vocabulary,
            PipelinePlan const& plan, IndexRange const& layers);

  struct Output {
    HiddenStates stream;  ///< for the next part; of the last: `hidden` before the output projection
    LossSums loss;        ///< of the last part
  };
  /// `input` is what the previous part gave; empty for the first. The last part computes the loss and, for training,
  /// its gradient at once, so that its backward may follow.
  Output forward(LayerContext& context, HiddenStates const& input, Saved& saved,
                 OutputLoss::Training const& training) const;
  /// `grad_output`: the gradient of forward's stream, overwritten; empty for the last part. Returns the input's, with
  /// the same fields as the input; parameter gradients +=.
  HiddenStates backward(LayerContext& context, HiddenStates const& grad_output, Saved const& saved) const;

  /// Tensors from the arena for what the previous part sends forward: empty fields where nothing comes.
  HiddenStates allocate_input(LayerContext& context) const { return allocate_boundary(context, layers_.begin); }
  /// Tensors from the arena for what the next part sends back.
  HiddenStates allocate_grad_output(LayerContext& context) const { return allocate_boundary(context, layers_.end); }

  IndexRange const& layers() const { return layers_; }
  bool begins_encoder() const { return layers_.begin == 0; }
  bool ends_encoder() const { return has_encoder() && layers_.end >= encoder_layers_; }
  bool begins_decoder() const { return has_decoder() && layers_.begin <= encoder_layers_; }
  bool ends_decoder() const { return output_.has_value(); }
  bool has_encoder() const { return layers_.begin < encoder_layers_; }
  bool has_decoder() const { return layers_.end > encoder_layers_; }

  /// The pieces by themselves, for generation and tests. The encoder's: `hidden` is not read where this part begins it.
  Tensor encode(LayerContext& context, Tensor const& hidden, Saved& saved) const;
  /// The decoder's layers over the next tokens of each sequence → [rows.tokens, d_model], from the arena. `stream`:
  /// memory [source tokens, d_model], and hidden of the previous part, not read where this one begins the decoder.
  Tensor decode(LayerContext& context, TokenIds const& tokens, TokenRows const& rows, HiddenStates const& stream,
                DecodeStep const& step, std::vector<DecodeCache>& caches) const;
  std::vector<DecodeCache> make_caches() const;
  void reorder(LayerContext& context, Tensor const& parents, DecodeStep const& step,
               std::vector<DecodeCache>& caches) const;
  /// hidden [rows, d_model] after the last layer → logits [rows, this rank's part of the vocabulary], from the arena.
  Tensor logits(LayerContext& context, Tensor const& hidden) const { return output_->logits(context, hidden); }
  std::int64_t first_logit() const { return output_->first_token(); }

 private:
  HiddenStates allocate_boundary(LayerContext& context, std::int64_t layer) const;

  IndexRange layers_;
  std::int64_t encoder_layers_;
  std::int64_t all_layers_;
  std::int64_t d_model_;
  DType dtype_;
  std::optional<TokenEmbedding> source_embedding_;
  std::optional<ResidualStack> encoder_;
  std::optional<TokenEmbedding> target_embedding_;
  std::optional<ResidualStack> decoder_;
  std::optional<OutputLoss> output_;
  std::shared_ptr<TensorOps> tensor_ops_;
};

}  // namespace heddle
