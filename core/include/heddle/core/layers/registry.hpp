#pragma once

#include <functional>
#include <heddle/core/layers/layer.hpp>
#include <heddle/core/layers/stack_input.hpp>
#include <heddle/core/layers/traits.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// Parts of a model by name, each with a factory: layers, or inputs of stacks.
template <class Part, class Traits>
class ComponentRegistry {
 public:
  using Factory = std::function<std::unique_ptr<Part>(LayerSpec const&)>;
  struct Entry {
    std::string name;
    std::string origin;  ///< "built-in" or the plug-in's path
    Factory factory;
    Traits traits;
  };

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

  std::vector<Entry> const& entries() const { return entries_; }
  /// Sets the origin of entries that are added from now on.
  void set_origin(std::string origin) { origin_ = std::move(origin); }

 private:
  std::vector<Entry> entries_;
  std::string origin_ = "built-in";
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

/// Registers feed_forward.
void register_feed_forward(LayerRegistry& registry);
/// Registers the input tokens.
void register_token_embedding(LayerRegistry& registry);

}  // namespace heddle
