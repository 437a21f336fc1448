#pragma once

#include <functional>
#include <heddle/core/base/named_registry.hpp>
#include <heddle/core/layers/layer.hpp>
#include <heddle/core/layers/stack_input.hpp>
#include <heddle/core/layers/traits.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

template <class Part, class Traits>
struct ComponentEntry : NamedEntry {
  std::function<std::unique_ptr<Part>(LayerSpec const&)> factory;
  Traits traits;
};

/// Parts of a model by name, each with a factory: layers, or inputs of stacks.
template <class Part, class PartTraits>
class ComponentRegistry : public NamedRegistry<ComponentEntry<Part, PartTraits>> {
 public:
  using Entry = ComponentEntry<Part, PartTraits>;
  using Factory = decltype(Entry::factory);
  using Traits = PartTraits;

  /// Throws ConfigError if the name is taken or empty, or if there is no factory.
  void add(std::string name, Factory factory, Traits traits = {});
  /// Adds a class that is made from a LayerSpec.
  template <class Made>
  void add(std::string name, Traits traits = {}) {
    add(
        std::move(name), [](LayerSpec const& spec) { return std::make_unique<Made>(spec); }, std::move(traits));
  }
  /// Builds the part `name`; throws ConfigError as `at` does, and if the factory returns null.
  std::unique_ptr<Part> build(std::string const& name, LayerSpec const& spec) const;
  /// The entry with that name; if there is none, throws ConfigError with `place` and the nearest spelling or all names.
  Entry const& at(std::string const& name, std::string const& place) const;
};

/// All that a stack's input declares before it is built.
struct InputTraits {
  std::vector<OptionDescription> options = {};  ///< those that the configuration may give it
  LayerCapabilities capabilities = {};
  bool embeds_tokens = false;  ///< it looks token ids up in LayerSpec::table
};

/// The sublayers by name: those that `model.encoder_sublayers` and `model.decoder_sublayers` may list.
class LayerRegistry : public ComponentRegistry<Layer, LayerTraits> {
 public:
  ComponentRegistry<StackInput, InputTraits> inputs;  ///< by name, for model.encoder_input and decoder_input
};

void register_feed_forward(LayerRegistry& registry);
void register_mixture_of_experts(LayerRegistry& registry);
void register_token_embedding(LayerRegistry& registry);

}  // namespace heddle
