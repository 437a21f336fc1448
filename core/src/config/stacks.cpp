#include "stacks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <heddle/core/base/error.hpp>
#include <utility>

#include "key_names.hpp"
#include "read_value.hpp"

namespace heddle {
namespace {

using StackMember = StackConfig ModelConfig::*;
constexpr std::array stack_members{std::pair{"encoder", &ModelConfig::encoder},
                                   std::pair{"decoder", &ModelConfig::decoder}};

/// Sets a layer's key, with the check of [model]; or only notes its name.
class LayerKeySetter {
 public:
  LayerKeySetter(std::string name, Setting const& setting, std::string place)
      : name_(std::move(name)), setting_(setting), place_(std::move(place)) {}

  template <class Member, class Check>
  void key(char const* name, Member& member, Check const& check, char const*) {
    names_.emplace_back(name);
    if (name_ != name) {
      return;
    }
    found_ = true;
    if (!config_values::read(setting_.value, member, check)) {
      throw ConfigError(fmt::format("{} is {}; expected {}", place_, config_values::describe(setting_.value),
                                    config_values::words_of<Member>(check)));
    }
  }
  bool found() const { return found_; }
  std::vector<std::string> const& names() const { return names_; }

 private:
  std::string name_;
  Setting const& setting_;
  std::string place_;
  std::vector<std::string> names_;
  bool found_ = false;
};

/// A sublayer occurs once in a layer, because its parameters are named after it.
void require_each_once(std::vector<std::string> const& sublayers, std::string const& place) {
  for (auto sublayer = sublayers.begin(); sublayer != sublayers.end(); ++sublayer) {
    if (std::find(sublayers.begin(), sublayer, *sublayer) != sublayer) {
      throw ConfigError(fmt::format("{} names {} twice; each sublayer may occur once in a layer", place,
                                    config_values::toml_string(*sublayer)));
    }
  }
}

/// Applies a setting that is no sublayer's option. `place` is its origin and key.
void apply_setting(std::string const& key, Setting const& setting, std::string const& place, ModelConfig& model,
                   StackConfig& stack) {
  if (key == "sublayers") {
    if (!config_values::read(setting.value, stack.sublayers, config_keys::NotEmpty{})) {
      throw ConfigError(fmt::format("{} is {}; expected {}", place, config_values::describe(setting.value),
                                    config_values::words_of<std::vector<std::string>>(config_keys::NotEmpty{})));
    }
    require_each_once(stack.sublayers, place);
    return;
  }
  LayerKeySetter setter(key, setting, place);
  config_keys::visit_layer_keys(setter, model);
  if (!setter.found()) {
    auto names = setter.names();
    names.emplace_back("sublayers");
    std::size_t const colon = place.find(": ");
    throw ConfigError(fmt::format("{}: there is no key {}; {}, or a sublayer's table of options",
                                  place.substr(0, colon), place.substr(colon + 2), nearest_or_all(key, names)));
  }
}

std::string place_of(Setting const& setting, std::string const& path) {
  return fmt::format("{}: model.{}", setting.origin, path);
}

/// Reads one stack's tables.
class StackReader {
 public:
  StackReader(ConfigDocument const& document, std::string name, ModelConfig const& model, StackMember member)
      : document_(document), name_(std::move(name)), model_(model), stack_(model.*member) {}

  StackConfig read(toml::table const& table) {
    for (auto const& [key, node] : table) {
      std::string const text(key.str());
      std::string const path = name_ + "." + text;
      if (text == "layers") {
        read_shorthand(path, node, "layers", stack_.layers, config_keys::between(0, config_keys::most_layers));
      } else if (text == "sublayers") {
        read_shorthand(path, node, "sublayers", stack_.sublayers, config_keys::NotEmpty{});
        require_each_once(stack_.sublayers, fmt::format("{}: model.{}", document_.origin("model", path), path));
      } else if (text != "layer") {
        read_setting(path, text, node, stack_.settings);
      }
    }
    if (toml::node const* const ranges = table.get("layer")) {
      read_ranges(*ranges);
    }
    return stack_;
  }

 private:
  [[noreturn]] void fail(std::string const& path, toml::node const& node, std::string const& right) const {
    throw ConfigError(
        fmt::format("{}: model.{} is {}; expected {}", document_.origin("model", path), path, describe(node), right));
  }

  template <class Member, class Check>
  void read_shorthand(std::string const& path, toml::node const& node, char const* key, Member& member,
                      Check const& check) const {
    std::string const other = fmt::format("{}_{}", name_, key);
    if (document_.find("model", other) != nullptr) {
      throw ConfigError(fmt::format("{}: model.{} is also given as model.{} ({}); leave out one of the two",
                                    document_.origin("model", path), path, other, document_.origin("model", other)));
    }
    auto const value = value_of(node);
    if (!value || !config_values::read(*value, member, check)) {
      fail(path, node, config_values::words_of<Member>(check));
    }
  }

  void read_setting(std::string const& path, std::string const& key, toml::node const& node, Settings& settings) const {
    if (toml::table const* const options = node.as_table()) {
      for (auto const& [option, option_node] : *options) {
        std::string const name(option.str());
        auto const value = value_of(option_node);
        if (!value) {
          fail(path + "." + name, option_node, "a truth value, a number or a text");
        }
        settings[key + "." + name] = {*value, document_.origin("model", path + "." + name)};
      }
      return;
    }
    auto const value = value_of(node);
    if (!value) {
      fail(path, node, "a key of a layer, or a sublayer's table of options");
    }
    Setting const setting{*value, document_.origin("model", path)};
    ModelConfig model = model_;
    StackConfig stack = stack_;
    apply_setting(key, setting, place_of(setting, path), model, stack);
    settings[key] = setting;
  }

  void read_ranges(toml::node const& ranges) {
    std::string const path = name_ + ".layer";
    if (!ranges.is_table()) {
      fail(path, ranges, fmt::format("tables of layers: [model.{}.\"4-6\"]", path));
    }
    for (auto const& [key, node] : *ranges.as_table()) {
      std::string const name(key.str());
      std::string const range_path = path + "." + name;
      if (!node.is_table()) {
        fail(range_path, node, "a table of keys");
      }
      LayerOverride entry{range_of(name, range_path), {}};
      for (auto const& [inner, inner_node] : *node.as_table()) {
        read_setting(range_path + "." + std::string(inner.str()), std::string(inner.str()), inner_node, entry.settings);
      }
      insert(std::move(entry), range_path);
    }
  }

  IndexRange range_of(std::string const& name, std::string const& path) const {
    IndexRange range;
    char const* const end = name.data() + name.size();
    auto const first = std::from_chars(name.data(), end, range.begin);
    auto rest = first;
    range.end = range.begin;
    if (first.ec == std::errc() && first.ptr != end && *first.ptr == '-') {
      rest = std::from_chars(first.ptr + 1, end, range.end);
    }
    if (rest.ec != std::errc() || rest.ptr != end || range.begin < 1 || range.end < range.begin ||
        range.end > stack_.layers) {
      throw ConfigError(fmt::format(
          "{}: model.{} does not name layers; expected one number or a range such as \"4-6\", from 1 to {}, which the "
          "{} has",
          document_.origin("model", path), path, stack_.layers, name_));
    }
    return {range.begin - 1, range.end};
  }

  void insert(LayerOverride entry, std::string const& path) {
    auto& overrides = stack_.overrides;
    for (LayerOverride const& other : overrides) {
      if (entry.layers.begin < other.layers.end && other.layers.begin < entry.layers.end) {
        throw ConfigError(fmt::format("{}: model.{} overlaps model.{}.layer.{}; a layer may be in one range",
                                      document_.origin("model", path), path, name_, range_name(other.layers)));
      }
    }
    auto const after = std::find_if(overrides.begin(), overrides.end(), [&](LayerOverride const& other) {
      return other.layers.begin > entry.layers.begin;
    });
    overrides.insert(after, std::move(entry));
  }

  ConfigDocument const& document_;
  std::string name_;
  ModelConfig const& model_;
  StackConfig stack_;
};

std::string settings_to_toml(Settings const& settings) {
  std::string text;
  for (auto const& [key, setting] : settings) {
    text += fmt::format("{} = {}\n", key, to_toml(setting.value));
  }
  return text;
}

/// The settings that hold for a layer, and the stack's key of each group, in ascending precedence.
std::vector<std::pair<Settings const*, std::string>> settings_of(StackConfig const& stack, std::int64_t layer) {
  std::vector<std::pair<Settings const*, std::string>> groups{{&stack.settings, ""}};
  for (LayerOverride const& entry : stack.overrides) {
    if (layer >= entry.layers.begin && layer < entry.layers.end) {
      groups.emplace_back(&entry.settings, ".layer." + range_name(entry.layers));
    }
  }
  return groups;
}

}  // namespace

void read_stacks(ConfigDocument const& document, ModelConfig& model) {
  for (auto const& [name, member] : stack_members) {
    toml::node const* const node = document.find("model", name);
    if (node == nullptr) {
      continue;
    }
    if (!node->is_table()) {
      throw ConfigError(fmt::format("{}: model.{} is {}; expected a section: [model.{}]",
                                    document.origin("model", name), name, describe(*node), name));
    }
    model.*member = StackReader(document, name, model, member).read(*node->as_table());
  }
}

std::string range_name(IndexRange const& layers) {
  return layers.count() == 1 ? fmt::format("{}", layers.end) : fmt::format("{}-{}", layers.begin + 1, layers.end);
}

std::string stacks_to_toml(ModelConfig const& model) {
  std::string text;
  for (auto const& [name, member] : stack_members) {
    StackConfig const& stack = model.*member;
    if (!stack.settings.empty()) {
      text += fmt::format("\n[model.{}]\n{}", name, settings_to_toml(stack.settings));
    }
    for (LayerOverride const& entry : stack.overrides) {
      text += fmt::format("\n[model.{}.layer.\"{}\"]\n{}", name, range_name(entry.layers),
                          settings_to_toml(entry.settings));
    }
  }
  return text;
}

ModelConfig layer_config(ModelConfig const& model, StackConfig ModelConfig::*stack, std::int64_t layer) {
  ModelConfig result = model;
  for (auto const& [settings, key] : settings_of(model.*stack, layer)) {
    for (auto const& [name, setting] : *settings) {
      if (name.find('.') == std::string::npos) {
        apply_setting(name, setting, fmt::format("{}: a layer's {}", setting.origin, name), result, result.*stack);
      }
    }
  }
  return result;
}

LayerOptions layer_options(StackConfig const& stack, std::string const& stack_name, std::int64_t layer,
                           std::string const& sublayer) {
  Settings given;
  std::string where = fmt::format("model.{}.{}", stack_name, sublayer);
  for (auto const& [settings, key] : settings_of(stack, layer)) {
    for (auto const& [name, setting] : *settings) {
      if (name.starts_with(sublayer + ".")) {
        given.insert_or_assign(name.substr(sublayer.size() + 1), setting);
        where = fmt::format("model.{}{}.{}", stack_name, key, sublayer);
      }
    }
  }
  return {std::move(given), std::move(where)};
}

}  // namespace heddle
