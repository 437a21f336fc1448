#pragma once

#include <functional>
#include <heddle/core/layers/layer.hpp>
#include <heddle/core/layers/traits.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

using LayerFactory = std::function<std::unique_ptr<Layer>(LayerSpec const&)>;

/// The sublayers by name: those that `model.encoder_sublayers` and `model.decoder_sublayers` may list.
class LayerRegistry {
 public:
  struct Entry {
    std::string name;
    std::string origin;  ///< "built-in" or the plug-in's path
    LayerFactory factory;
    LayerTraits traits;
  };

  /// Throws ConfigError if the name is taken or empty, or if there is no factory.
  void add(std::string name, LayerFactory factory, LayerTraits traits = {});
  /// Adds a class that is made from a LayerSpec.
  template <class Made>
  void add(std::string name, LayerTraits traits = {}) {
    add(
        std::move(name), [](LayerSpec const& spec) { return std::make_unique<Made>(spec); }, std::move(traits));
  }
  /// Builds the layer `name`; throws ConfigError as `at` does, and if the factory returns null.
  std::unique_ptr<Layer> build(std::string const& name, LayerSpec const& spec) const;
  /// The entry with that name; if there is none, throws ConfigError with `place` and the nearest spelling or all names.
  Entry const& at(std::string const& name, std::string const& place) const;

  std::vector<Entry> const& entries() const { return entries_; }
  /// Sets the origin of entries that are added from now on.
  void set_origin(std::string origin) { origin_ = std::move(origin); }

 private:
  std::vector<Entry> entries_;
  std::string origin_ = "built-in";
};

/// Registers feed_forward.
void register_feed_forward(LayerRegistry& registry);

}  // namespace heddle
