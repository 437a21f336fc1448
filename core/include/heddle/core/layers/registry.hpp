#pragma once

#include <functional>
#include <heddle/core/layers/layer.hpp>
#include <memory>
#include <string>
#include <vector>

namespace heddle {

using LayerFactory = std::function<std::unique_ptr<Layer>(LayerSpec const&)>;

/// Sublayers by name: what `model.encoder_sublayers` and `model.decoder_sublayers` may list.
class LayerRegistry {
 public:
  struct Entry {
    std::string name;
    std::string origin;  ///< "built-in" or the plug-in's path
    LayerFactory factory;
  };

  /// Throws ConfigError where the name is taken.
  void add(std::string name, LayerFactory factory);
  /// Builds the layer `name`; ConfigError lists the registered names where there is none.
  std::unique_ptr<Layer> build(std::string const& name, LayerSpec const& spec) const;

  std::vector<Entry> const& entries() const { return entries_; }
  /// What entries added from now on say of where they come from.
  void set_origin(std::string origin) { origin_ = std::move(origin); }

 private:
  std::vector<Entry> entries_;
  std::string origin_ = "built-in";
};

/// Registers self_attention, cross_attention and feed_forward.
void register_built_in_layers(LayerRegistry& registry);

}  // namespace heddle
