#pragma once

#include <functional>
#include <heddle/core/layers/layer.hpp>
#include <memory>
#include <string>
#include <vector>

namespace heddle {

using LayerFactory = std::function<std::unique_ptr<Layer>(LayerSpec const&)>;

/// The ways of splitting a model that a layer computes rightly under. Each is declared, never assumed of others.
struct LayerCapabilities {
  bool tensor = true;    ///< parallel.tensor > 1
  bool sequence = true;  ///< parallel.sequence_parallel
  bool context = true;   ///< parallel.context > 1
  bool decode = true;    ///< generation, token by token
  bool devices = true;   ///< an execution space that is not the host's
};

/// All that a layer declares before it is built.
struct LayerTraits {
  std::vector<OptionDescription> options = {};  ///< those that the configuration may give it
  LayerCapabilities capabilities = {};
  /// Multiplications of a forward pass per token in products with parameters, by which a pipeline is cut. Not given: as
  /// many as a feed-forward layer has.
  std::function<std::int64_t(ModelConfig const& keys, LayerOptions const& options)> multiplications = {};
};

/// Sublayers by name: those that `model.encoder_sublayers` and `model.decoder_sublayers` may list.
class LayerRegistry {
 public:
  struct Entry {
    std::string name;
    std::string origin;  ///< "built-in" or the plug-in's path
    LayerFactory factory;
    LayerTraits traits;
  };

  /// Throws ConfigError where the name is taken.
  void add(std::string name, LayerFactory factory, LayerTraits traits = {});
  /// Builds the layer `name`; ConfigError as `at`.
  std::unique_ptr<Layer> build(std::string const& name, LayerSpec const& spec) const;
  /// The entry of that name; ConfigError lists the registered names where there is none, `place` first.
  Entry const& at(std::string const& name, std::string const& place) const;

  std::vector<Entry> const& entries() const { return entries_; }
  /// The origin of entries that are added from now on.
  void set_origin(std::string origin) { origin_ = std::move(origin); }

 private:
  std::vector<Entry> entries_;
  std::string origin_ = "built-in";
};

/// Registers self_attention, cross_attention and feed_forward.
void register_built_in_layers(LayerRegistry& registry);

}  // namespace heddle
