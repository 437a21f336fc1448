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
  std::string_view const lack = name.empty() ? "name" : !factory ? "factory: a null pointer" : "";
  this->insert(kind<Part>, lack, {{std::move(name)}, std::move(factory), std::move(traits)});
}

template <class Part, class Traits>
auto ComponentRegistry<Part, Traits>::at(std::string const& name, std::string const& place) const -> Entry const& {
  if (Entry const* const entry = this->find(name)) {
    return *entry;
  }
  std::string const others =
      fmt::format("{} of a plug-in in plugins.paths", std::is_same_v<Part, Layer> ? "a layer" : "an input");
  throw ConfigError("{}: there is no {} \"{}\"; {}", place, kind<Part>, name,
                    nearest_or_all(name, this->names(), others));
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
