
#include <algorithm>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/io/exchange/marian.hpp>
#include <numeric>

#include "exchange/model_form.hpp"

namespace heddle {

namespace {

using Added = std::map<std::string, std::vector<float>>;

/// Adds to the projections of a stack's first layer what moves its tokens by `shift`.
void add_to_projections(Checkpoint const& checkpoint, std::string const& stack, std::vector<float> const& shift,
                        Added& added) {
  std::string const attention = stack + ".layers.0.self_attention.";
  for (char const* const name : {"q", "k", "v"}) {
    std::vector<float> const weight = checkpoint.read(attention + name + ".weight");
    std::vector<float>& bias = added[attention + name + ".bias"];
    for (auto row = weight.begin(); row != weight.end(); row += std::ssize(shift)) {
      bias.push_back(static_cast<float>(std::inner_product(shift.begin(), shift.end(), row, 0.0)));
    }
  }
}

/// Moves the tables of embeddings by that of the token that the decoder starts from, and the tokens back: in post-norm
/// by the biases of the first layer's self-attention, in pre-norm by one more layer that does nothing else.
void move_embeddings(Checkpoint const& checkpoint, Config const& config, ModelForm& form) {
  bool const shared = checkpoint.contains("embedding.weight");
  std::string const table = shared ? "embedding.weight" : "decoder.embedding.weight";
  std::int32_t const start = checkpoint.contents().vocabulary().target.special_ids().begin;
  std::vector<float> const vector = checkpoint.read(TensorSlice{table, value_key, {{start, start + 1}}});
  if (std::ranges::all_of(vector, [](float value) { return value == 0; })) {
    return;
  }
  if (config.model.embedding_norm || !config.model.biases) {
    throw ConfigError(
        "the embedding of {}, from which the decoder starts, is not 0: Marian's decoder starts from a "
        "vector of zeros, which only models with model.biases = true and without model.embedding_norm can "
        "express",
        checkpoint.contents().vocabulary().target.piece(start));
  }
  for (StackKind const& kind : stack_kinds) {
    StackConfig const& stack = config.model.*kind.config;
    if ((shared || kind.predicts) &&
        (stack.sublayers.front() != "self_attention" || stack.settings.contains("tied_layers"))) {
      throw ConfigError(
          "the embedding of {}, from which the decoder starts, is not 0: Marian's decoder starts from a vector of "
          "zeros, "
          "which only models whose {} begins with self_attention and without tied_layers can express; others are to be "
          "trained with it: see \"Students\" in docs/guide/coming-from-marian.md",
          checkpoint.contents().vocabulary().target.piece(start), kind.name);
    }
  }
  std::vector<float> shift;
  for (float const value : vector) {
    form.added[table].push_back(-value);
    shift.push_back(static_cast<float>(std::sqrt(static_cast<double>(config.model.d_model)) * value));
  }
  for (StackKind const& kind : stack_kinds) {
    std::string const stack(kind.name);
    if (!shared && stack == "encoder") {
      continue;
    }
    form.added[stack + ".layers.0.self_attention.out.bias"] = shift;
    if (config.model.norm == NormPlacement::post) {
      add_to_projections(checkpoint, stack, shift, form.added);
    } else {  // the first norm is before the projections
      form.longer_stacks.push_back(stack);
      ++(form.config.model.*kind.config).layers;
    }
  }
}

}  // namespace

ModelForm form_for_marian(Checkpoint const& checkpoint, Config const& config) {
  CheckpointContents const& contents = checkpoint.contents();
  ModelForm form{.config = in_form_of(marian_family(), config)};
  form.config.model.position_frequencies = PositionFrequencies::tensor2tensor;
  form.config.model.norm_epsilon = marian_norm_epsilon;
  form.config.model.output_bias = true;
  MarianVocabulary const source = marian_vocabulary_of(contents.source_model);
  MarianVocabulary const target = marian_vocabulary_of(contents.target_model);
  static_cast<void>(config_json(marian_family(), form.config));  // or throws
  form.source_model = source.model;
  form.target_model = target.model;
  form.source_pieces = source.pieces;
  form.target_pieces = target.pieces;
  form.origin = marian_origin(source, target);
  move_embeddings(checkpoint, config, form);
  return form;
}

}  // namespace heddle
