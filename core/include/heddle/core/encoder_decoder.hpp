#pragma once

#include <heddle/core/layers/output_loss.hpp>
#include <heddle/core/layers/residual_stack.hpp>
#include <heddle/core/layers/token_embedding.hpp>

namespace heddle {

/// Sizes in pieces. `joint`: both sides use one vocabulary, so tied embeddings are one table.
struct VocabularySizes {
  std::int64_t source = 0;
  std::int64_t target = 0;
  bool joint = false;
};

/// The encoder-decoder Transformer. Parameters (declared on construction, in the set of `spec`):
///
///   embedding.weight                      tied, joint vocabulary: both embeddings and the output projection
///   encoder.embedding.weight, decoder.embedding.weight, output.weight      otherwise (tied: no output.weight)
///   encoder|decoder.positions.weight      learned positions
///   encoder|decoder.layers.I.SUBLAYER.…   see ResidualStack
class EncoderDecoder {
 public:
  /// spec.name and spec.side are not read.
  EncoderDecoder(LayerSpec const& spec, LayerRegistry const& layers, VocabularySizes const& vocabulary);

  /// One micro-batch, forward and backward; parameter gradients +=. Everything taken from the arena is released.
  LossSums forward_backward(Context& context, OutputLoss::Training const& training) const;
  /// The loss alone.
  LossSums forward(Context& context, double label_smoothing) const;
  /// logits [target tokens, vocabulary] of the whole pack, from the arena: for tests and small inputs.
  Tensor logits(Context& context) const;

  /// The pack's source side → memory [source tokens, d_model], from the arena.
  Tensor encode(Context& context) const;
  std::vector<DecodeCache> make_caches() const { return decoder_.make_caches(); }
  /// The newest token of each row (ids int32 [rows]) → logits [rows, vocabulary], from the arena. `rows` gives each
  /// row's position, `memory` is what encode gave.
  Tensor decode(Context& context, TokenIds const& tokens, TokenRows const& rows, Tensor const& memory,
                DecodeStep const& step, std::vector<DecodeCache>& caches) const;
  /// Row i of the caches becomes what row parents[i] was, after decode(step).
  void reorder(Context& context, Tensor const& parents, DecodeStep const& step,
               std::vector<DecodeCache>& caches) const {
    decoder_.reorder(context, parents, step, caches);
  }

 private:
  struct Tables {
    Parameter& source;
    Parameter& target;
    Parameter& output;
  };
  static Tables declare_tables(LayerSpec const& spec, VocabularySizes const& vocabulary);
  Tensor decode_hidden(Context& context, Saved& encoder_saved, Saved& decoder_saved, Tensor& memory) const;

  Tables tables_;
  TokenEmbedding source_embedding_;
  ResidualStack encoder_;
  TokenEmbedding target_embedding_;
  ResidualStack decoder_;
  OutputLoss output_;
  std::shared_ptr<TensorOps> tensor_ops_;
};

}  // namespace heddle
