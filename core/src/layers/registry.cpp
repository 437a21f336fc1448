#include <fmt/format.h>

#include <heddle/core/base/error.hpp>
#include <heddle/core/base/spelling.hpp>
#include <heddle/core/layers/registry.hpp>

namespace heddle {

void LayerRegistry::add(std::string name, LayerFactory factory, LayerTraits traits) {
  if (name.empty() || !factory) {
    throw ConfigError(fmt::format("{} registers the layer '{}' without a {}", origin_, name,
                                  name.empty() ? "name" : "factory: a null pointer"));
  }
  for (Entry const& entry : entries_) {
    if (entry.name == name) {
      throw ConfigError(
          fmt::format("the layer name '{}' is taken by {}; each layer needs its own name", name, entry.origin));
    }
  }
  entries_.push_back({std::move(name), origin_, std::move(factory), std::move(traits)});
}

LayerRegistry::Entry const& LayerRegistry::at(std::string const& name, std::string const& place) const {
  std::vector<std::string> names;
  for (Entry const& entry : entries_) {
    if (entry.name == name) {
      return entry;
    }
    names.push_back(entry.name);
  }
  throw ConfigError(fmt::format("{}: there is no layer \"{}\"; {}", place, name,
                                nearest_or_all(name, names, ", or a layer of a plug-in in plugins.paths")));
}

std::unique_ptr<Layer> LayerRegistry::build(std::string const& name, LayerSpec const& spec) const {
  Entry const& entry = at(name, spec.name);
  std::unique_ptr<Layer> layer = entry.factory(spec);
  if (layer == nullptr) {
    throw ConfigError(fmt::format("{}: layer '{}' of {} was not made: its function returned a null pointer", spec.name,
                                  name, entry.origin));
  }
  return layer;
}

}  // namespace heddle
