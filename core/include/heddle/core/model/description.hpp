#pragma once

#include <heddle/core/base/index_range.hpp>
#include <heddle/core/model/stack_description.hpp>
#include <string>
#include <vector>

namespace heddle {

/// A model: stacks of layers, one after another. Each stack but the first has the output of the one before it as its
/// encoder output; the last gives the logits. All layers are one list, in this order, by which a pipeline is cut.
struct ModelDescription {
  ModelConfig keys;
  std::vector<StackDescription> stacks;

  /// The number of layers of all stacks.
  std::int64_t layers() const;
  /// The range of a stack's layers in the one list.
  IndexRange range(std::size_t stack) const;
  /// The layers of `part` that are a stack's, counted from the stack's first.
  IndexRange range_in(std::size_t stack, IndexRange const& part) const;
  /// True if `part` has a stack's entry (its embedding), or its exit. A stack without layers belongs to the layer that
  /// follows it, or to the last one.
  bool has_entry(std::size_t stack, IndexRange const& part) const;
  bool has_exit(std::size_t stack, IndexRange const& part) const;
  LayerDescription const& layer(std::int64_t index) const;

  /// The reason why a layer cannot be used in this way, with layer and key; "" if all can.
  std::string refusal(LayerUse const& use) const;
  /// Whether a layer needs samples with prefixes.
  bool needs_prefixes() const;
  /// The reason why the model cannot be trained, with layer and key; "" if it can.
  std::string training_refusal() const;
  /// The reason why the model cannot generate text token by token, with the layer or the key; "" if it can.
  std::string generation_refusal() const;

  /// "the encoder's 6 and the decoder's 6 layers".
  std::string describe() const;
};

/// The one place that knows which stacks are possible: the encoder over the source, the decoder over the target, as
/// model.stacks lists them. Throws as describe_stack does.
ModelDescription describe_model(ModelConfig const& model, LayerRegistry const& registry);

/// The reason why the model cannot translate: it cannot generate, or has no source; "" if it can.
std::string translation_refusal(ModelDescription const& model);

/// Throws ConfigError where the model cannot translate.
/// `wanted_by` begins the message: the key or the command that asks for translations. `remedy` ends it: "; or …".
void require_translation(ModelDescription const& model, std::string const& wanted_by, std::string const& remedy = "");

}  // namespace heddle
