#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/layers/description.hpp>
#include <numeric>

namespace heddle {

namespace {

SublayerDescription describe_sublayer(ModelConfig const& keys, LayerOptions options,
                                      LayerRegistry::Entry const& entry) {
  options.check(entry.traits.options);
  SublayerDescription sublayer{entry.name, std::move(options), entry.traits.capabilities, 2 * keys.d_model * keys.d_ff};
  if (entry.traits.multiplications) {
    sublayer.multiplications = entry.traits.multiplications(keys, sublayer.options);
  }
  return sublayer;
}

/// Options may be given to sublayers of this layer, or of another layer of its stack.
void require_used(StackConfig const& stack, std::string const& name, std::vector<LayerDescription> const& layers) {
  auto const is_used = [&](std::string const& sublayer) {
    return std::any_of(layers.begin(), layers.end(), [&](LayerDescription const& layer) {
      return std::any_of(layer.sublayers.begin(), layer.sublayers.end(),
                         [&](SublayerDescription const& each) { return each.name == sublayer; });
    });
  };
  auto const check = [&](Settings const& settings) {
    for (auto const& [key, setting] : settings) {
      std::size_t const dot = key.find('.');
      if (dot != std::string::npos && !is_used(key.substr(0, dot))) {
        throw ConfigError(fmt::format("{}: the {} has no sublayer {}, which {} is for", setting.origin, name,
                                      key.substr(0, dot), key));
      }
    }
  };
  check(stack.settings);
  for (LayerOverride const& entry : stack.overrides) {
    check(entry.settings);
  }
}

}  // namespace

std::int64_t LayerDescription::multiplications() const {
  return std::accumulate(
      sublayers.begin(), sublayers.end(), std::int64_t{0},
      [](std::int64_t sum, SublayerDescription const& sublayer) { return sum + sublayer.multiplications; });
}

StackDescription describe_stack(ModelConfig const& model, StackConfig ModelConfig::*stack, std::string const& name,
                                Side side, LayerRegistry const& registry) {
  StackDescription description{.name = name, .side = side, .memory_side = {}, .layers = {}};
  for (std::int64_t index = 0; index < (model.*stack).layers; ++index) {
    LayerDescription layer{std::make_shared<ModelConfig const>(layer_config(model, stack, index)), {}};
    for (std::string const& sublayer : (*layer.keys.*stack).sublayers) {
      layer.sublayers.push_back(describe_sublayer(*layer.keys, layer_options(model.*stack, name, index, sublayer),
                                                  registry.at(sublayer, layer.keys->place("sublayers"))));
    }
    description.layers.push_back(std::move(layer));
  }
  require_used(model.*stack, name, description.layers);
  return description;
}

}  // namespace heddle
