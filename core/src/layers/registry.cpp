#include <fmt/format.h>

#include <heddle/core/base/error.hpp>
#include <heddle/core/base/spelling.hpp>
#include <heddle/core/layers/registry.hpp>
#include <type_traits>

namespace heddle {

namespace {

template <class Part>
constexpr char const* kind = std::is_same_v<Part, Layer> ? "layer" : "input";

}  // namespace

template <class Part, class Traits>
void ComponentRegistry<Part, Traits>::add(std::string name, Factory factory, Traits traits) {
  if (name.empty() || !factory) {
    throw ConfigError("{} registers the {} '{}' without a {}", origin_, kind<Part>, name,
                      name.empty() ? "name" : "factory: a null pointer");
  }
  for (Entry const& entry : entries_) {
    if (entry.name == name) {
      throw ConfigError("the {0} name '{1}' is taken by {2}; each {0} needs its own name", kind<Part>, name,
                        entry.origin);
    }
  }
  entries_.push_back({std::move(name), origin_, std::move(factory), std::move(traits)});
}

template <class Part, class Traits>
auto ComponentRegistry<Part, Traits>::at(std::string const& name, std::string const& place) const -> Entry const& {
  std::vector<std::string> names;
  for (Entry const& entry : entries_) {
    if (entry.name == name) {
      return entry;
    }
    names.push_back(entry.name);
  }
  std::string const others =
      fmt::format("{} of a plug-in in plugins.paths", std::is_same_v<Part, Layer> ? "a layer" : "an input");
  throw ConfigError("{}: there is no {} \"{}\"; {}", place, kind<Part>, name, nearest_or_all(name, names, others));
}

template <class Part, class Traits>
std::unique_ptr<Part> ComponentRegistry<Part, Traits>::build(std::string const& name, LayerSpec const& spec) const {
  Entry const& entry = at(name, spec.name);
  std::unique_ptr<Part> part = entry.factory(spec);
  if (part == nullptr) {
    throw ConfigError("{}: {} '{}' of {} was not made: its function returned a null pointer", spec.name, kind<Part>,
                      name, entry.origin);
  }
  return part;
}

template class ComponentRegistry<Layer, LayerTraits>;
template class ComponentRegistry<StackInput, InputTraits>;

}  // namespace heddle
