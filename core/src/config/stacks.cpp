#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>

#include "schema.hpp"

namespace heddle {
namespace {

/// A stack's settings that `holds` for the ranges of layers which they override, in ascending precedence, each with
/// its full name.
template <class Holds>
std::vector<std::pair<std::string, Setting>> settings_of(StackConfig const& stack, std::string_view stack_name,
                                                         Holds const& holds) {
  std::vector<std::pair<std::string, Setting>> found;
  auto const add = [&](Settings const& settings, std::string const& table) {
    for (auto const& [name, setting] : settings) {
      found.emplace_back(name, setting);
      found.back().second.key = fmt::format("{}.{}", table, name);
    }
  };
  add(stack.settings, fmt::format("model.{}", stack_name));
  for (LayerOverride const& entry : stack.overrides) {
    if (holds(entry.layers)) {
      add(entry.settings,
          fmt::format("model.{}.layer.{}", stack_name, entry.name.empty() ? range_name(entry.layers) : entry.name));
    }
  }
  return found;
}

auto settings_of_layer(StackConfig const& stack, std::string_view stack_name, std::int64_t layer) {
  return settings_of(stack, stack_name,
                     [&](IndexRange const& layers) { return layer >= layers.begin && layer < layers.end; });
}

std::string place_of(Setting const& setting) {
  return fmt::format("{}{}{}", setting.origin, setting.origin.empty() ? "" : ": ", setting.key);
}

}  // namespace

StackKind const& stack_kind(std::string_view name) {
  auto const* const found = std::ranges::find(stack_kinds, name, &StackKind::name);
  if (found == stack_kinds.end()) {
    throw Error("there is no stack \"{}\"; stack_kinds lists all", name);
  }
  return *found;
}

std::string KeyLocations::of(std::string const& key) const {
  auto const found = by_key.find(key);
  return found == by_key.end() ? fmt::format("{}.{}", section, key) : found->second;
}

void keep_one_of_each_kind(ModelConfig& model) {
  for (StackKind const& kind : stack_kinds) {
    StackConfig& stack = model.*kind.config;
    std::int64_t plain = stack.layers;
    std::int64_t kept = 0;
    for (LayerOverride& override : stack.overrides) {
      plain -= override.layers.count();
      override.layers = {kept, kept + 1};
      ++kept;
    }
    stack.layers = kept + (plain > 0 ? 1 : 0);
    stack.settings.erase(tied_layers_key);
  }
}

std::vector<std::string> places_of_absent_stacks(ModelConfig const& model) {
  std::vector<std::string> found;
  for (auto const& [stack, member, predicts] : stack_kinds) {
    if (std::ranges::find(model.stacks, stack) != model.stacks.end()) {
      continue;
    }
    // A resolved configuration gives every key: no note is made of a default.
    StackConfig const usual = ModelConfig().*member;
    auto const add = [&, name_of_stack = stack](char const* name, bool changed) {
      std::string const key = fmt::format("{}_{}", name_of_stack, name);
      if (changed && model.places.given(key)) {
        found.push_back(model.place(key));
      }
    };
    add("layers", (model.*member).layers != usual.layers);
    add("sublayers", (model.*member).sublayers != usual.sublayers);
    add("input", (model.*member).input != usual.input);
    for (auto const& [name, setting] : settings_of(model.*member, stack, [](auto const&) { return true; })) {
      found.push_back(place_of(setting));
    }
  }
  return found;
}

std::string range_name(IndexRange const& layers) {
  return layers.count() == 1 ? fmt::format("{}", layers.end) : fmt::format("{}-{}", layers.begin + 1, layers.end);
}

ModelConfig layer_config(ModelConfig const& model, StackMember stack, std::int64_t layer) {
  ModelConfig result = model;
  std::string_view const stack_name = std::ranges::find(stack_kinds, stack, &StackKind::config)->name;
  result.places.by_key["sublayers"] = model.place(fmt::format("{}_sublayers", stack_name));
  std::vector<ConfigKey> const keys = layer_keys(result, result.*stack);
  for (auto const& [name, setting] : settings_of_layer(model.*stack, stack_name, layer)) {
    auto const key = std::ranges::find(
        keys, name, [](ConfigKey const& each) -> auto const& { return each.description.name; });
    if (key == keys.end()) {
      continue;  // an option of a sublayer
    }
    auto const value = key->description.converted(setting.value);
    if (!value) {
      throw ConfigError("{} is {}; expected {}", place_of(setting), describe(setting.value),
                        key->description.expected(setting.value));
    }
    key->set({*value, setting.origin});
    result.places.by_key[name] = place_of(setting);
  }
  auto const own = std::ranges::find(model.stacks, stack_name);
  if (own != model.stacks.begin() && own != model.stacks.end()) {
    result.encoder_width = layer_config(model, stack_kind(*(own - 1)).config, -1).d_model;
  }
  return result;
}

LayerOptions layer_options(StackConfig const& stack, std::string const& stack_name, std::int64_t layer,
                           std::string const& sublayer) {
  Settings given;
  for (auto const& [name, setting] : settings_of_layer(stack, stack_name, layer)) {
    if (name.starts_with(sublayer + ".")) {
      given[name.substr(sublayer.size() + 1)] = setting;
    }
  }
  return {std::move(given), fmt::format("model.{}.{}", stack_name, sublayer)};
}

}  // namespace heddle
