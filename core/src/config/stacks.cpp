#include "stacks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/spelling.hpp>
#include <utility>

#include "reader.hpp"

namespace heddle {
namespace {

/// Keys of a stack's table that are also keys of [model]: "decoder.layers" is "decoder_layers".
constexpr std::array stack_shorthands{"layers", "sublayers"};

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
      throw ConfigError(
          fmt::format("{} is {}; expected {}", place_, config_values::describe(setting_.value),
                      config_values::with_meant<Member>(config_values::words_of<Member>(check), setting_.value)));
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

/// The beginning of a message about a key of [model] that was given at `origin`.
std::string place_of(std::string const& origin, std::string const& path) {
  return fmt::format("{}{}model.{}", origin, origin.empty() ? "" : ": ", path);
}

/// `names` are those of a layer's keys.
[[noreturn]] void fail_unknown(std::string const& key, Setting const& setting, std::string const& path,
                               std::vector<std::string> names, std::vector<std::string> const& sublayers) {
  if (std::find(sublayers.begin(), sublayers.end(), key) != sublayers.end()) {
    throw ConfigError(fmt::format("{} is {}; expected a table of this sublayer's options: [model.{}]",
                                  place_of(setting.origin, path), config_values::describe(setting.value), path));
  }
  names.emplace_back("sublayers");
  std::string const in_table = fmt::format(", or an option of a sublayer in its table, such as {} = {{ {} = {} }}",
                                           sublayers.front(), key, to_toml(setting.value));
  throw ConfigError(
      fmt::format("{}: there is no key model.{}; {}", setting.origin, path, nearest_or_all(key, names, in_table)));
}

/// Applies a setting that is no sublayer's option; `path` is its key in [model], of which `key` is the end.
void apply_setting(std::string const& key, Setting const& setting, std::string const& path, ModelConfig& model,
                   StackConfig& stack) {
  std::string const place = place_of(setting.origin, path);
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
    fail_unknown(key, setting, path, setter.names(), stack.sublayers);
  }
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
        read_shorthand(path, node, "layers", stack_.layers, config_keys::between(0, config_keys::max_layers));
      } else if (text == "sublayers") {
        read_shorthand(path, node, "sublayers", stack_.sublayers, config_keys::NotEmpty{});
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
  [[noreturn]] void fail(std::string const& path, std::string const& wrong, std::string const& right) const {
    throw ConfigError(
        fmt::format("{} is {}; expected {}", place_of(document_.origin("model", path), path), wrong, right));
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
      fail(path, describe_wrong<Member>(node, check), config_values::words_of<Member>(check));
    }
  }

  void read_setting(std::string const& path, std::string const& key, toml::node const& node, Settings& settings) const {
    if (toml::table const* const options = node.as_table()) {
      for (auto const& [option, option_node] : *options) {
        std::string const name(option.str());
        auto const value = value_of(option_node);
        if (!value) {
          fail(path + "." + name, describe(option_node),
               option_node.is_table()
                   ? fmt::format("an option of the sublayer {}; layers have tables in [model.{}.layer]", key, name_)
                   : "a truth value, a number or a text");
        }
        settings[key + "." + name] = {*value, document_.origin("model", path + "." + name)};
      }
      return;
    }
    auto const value = value_of(node);
    if (!value) {
      fail(path, describe(node), "a key of a layer, or a sublayer's table of options");
    }
    Setting const setting{*value, document_.origin("model", path)};
    ModelConfig model = model_;
    StackConfig stack = stack_;
    apply_setting(key, setting, path, model, stack);
    settings[key] = setting;
  }

  void read_ranges(toml::node const& ranges) {
    std::string const path = name_ + ".layer";
    if (!ranges.is_table()) {
      fail(path, describe(ranges), fmt::format("tables of layers: [model.{}.\"4-6\"]", path));
    }
    for (auto const& [key, node] : *ranges.as_table()) {
      std::string const name(key.str());
      std::string const range_path = path + "." + name;
      if (!node.is_table()) {
        fail(range_path, describe(node), "a table of keys");
      }
      LayerOverride entry{.layers = range_of(name, range_path), .settings = {}, .name = name};
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
    std::string const place = place_of(document_.origin("model", path), path);
    if (rest.ec != std::errc() || rest.ptr != end || range.begin < 1 || range.end < range.begin) {
      throw ConfigError(fmt::format(
          "{} does not name layers; expected one number or a range such as \"4-6\", counted from 1", place));
    }
    if (range.end > stack_.layers) {
      throw ConfigError(
          fmt::format("{} names layers that the {} does not have: it has {}", place, name_, stack_.layers));
    }
    return {range.begin - 1, range.end};
  }

  void insert(LayerOverride entry, std::string const& path) {
    auto& overrides = stack_.overrides;
    for (LayerOverride const& other : overrides) {
      if (entry.layers.begin < other.layers.end && other.layers.begin < entry.layers.end) {
        fail_overlap(path, fmt::format("{}.layer.{}", name_, range_name(other.layers)));
      }
    }
    auto const after = std::find_if(overrides.begin(), overrides.end(), [&](LayerOverride const& other) {
      return other.layers.begin > entry.layers.begin;
    });
    overrides.insert(after, std::move(entry));
  }

  /// Names an override rather than the file as wrong.
  [[noreturn]] void fail_overlap(std::string wrong, std::string other) const {
    if (document_.origin("model", other).starts_with("--set")) {
      std::swap(wrong, other);
    }
    throw ConfigError(fmt::format("{} overlaps model.{} ({}); a layer may be in one range",
                                  place_of(document_.origin("model", wrong), wrong), other,
                                  document_.origin("model", other)));
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

/// Settings and the path in [model] of the table that has them: "decoder.layer.4-6".
using SettingsGroup = std::pair<Settings const*, std::string>;

SettingsGroup group_of(LayerOverride const& entry, std::string const& stack_name) {
  return {&entry.settings,
          fmt::format("{}.layer.{}", stack_name, entry.name.empty() ? range_name(entry.layers) : entry.name)};
}

/// The settings that hold for a layer, in ascending precedence.
std::vector<SettingsGroup> settings_of(StackConfig const& stack, std::string const& stack_name, std::int64_t layer) {
  std::vector<SettingsGroup> groups{{&stack.settings, stack_name}};
  for (LayerOverride const& entry : stack.overrides) {
    if (layer >= entry.layers.begin && layer < entry.layers.end) {
      groups.push_back(group_of(entry, stack_name));
    }
  }
  return groups;
}

std::string name_of(StackMember stack) {
  return std::string(std::find_if(stack_kinds.begin(), stack_kinds.end(), [&](StackKind const& kind) {
                       return kind.config == stack;
                     })->name);
}

}  // namespace

void read_stacks(ConfigDocument const& document, ModelConfig& model) {
  for (auto const& [kind_name, member, predicts] : stack_kinds) {
    std::string const name(kind_name);
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

void require_each_once(std::vector<std::string> const& sublayers, std::string const& place) {
  for (auto sublayer = sublayers.begin(); sublayer != sublayers.end(); ++sublayer) {
    if (std::find(sublayers.begin(), sublayer, *sublayer) != sublayer) {
      throw ConfigError(fmt::format("{} names {} twice; each sublayer may occur once in a layer", place,
                                    config_values::toml_string(*sublayer)));
    }
  }
}

std::optional<std::string> other_spelling(std::string const& key) {
  for (auto const& [stack, member, predicts] : stack_kinds) {
    for (char const* const name : stack_shorthands) {
      std::string const table_key = fmt::format("{}.{}", stack, name);
      std::string const shorthand = fmt::format("{}_{}", stack, name);
      if (key == table_key || key == shorthand) {
        return key == table_key ? shorthand : table_key;
      }
    }
  }
  return std::nullopt;
}

StackKind const& stack_kind(std::string_view name) {
  for (StackKind const& kind : stack_kinds) {
    if (kind.name == name) {
      return kind;
    }
  }
  throw Error(fmt::format("there is no stack \"{}\"; stack_kinds lists all", name));
}

std::string KeyPlaces::of(std::string const& key) const {
  auto const found = by_key.find(key);
  return found == by_key.end() ? fmt::format("{}.{}", section, key) : found->second;
}

KeyPlaces places_of(ConfigDocument const& document, std::string const& section) {
  KeyPlaces places{.section = section};
  if (toml::table const* const keys = document.table()[section].as_table()) {
    for (auto const& [name, node] : *keys) {
      std::string const key(name.str());
      places.by_key[key] = fmt::format("{}: {}.{}", document.origin(section, key), section, key);
    }
  }
  return places;
}

KeyPlaces places_of_model(ConfigDocument const& document) {
  KeyPlaces places = places_of(document, "model");
  auto const add = [&](std::string const& key, std::string const& path) {
    if (document.find("model", path) != nullptr) {
      places.by_key[key] = place_of(document.origin("model", path), path);
    }
  };
  for (auto const& [stack, member, predicts] : stack_kinds) {
    for (char const* const name : stack_shorthands) {
      add(fmt::format("{}_{}", stack, name), fmt::format("{}.{}", stack, name));
    }
  }
  return places;
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
  }
}

std::vector<std::string> places_of_absent_stacks(ModelConfig const& model) {
  std::vector<std::string> found;
  for (auto const& [stack, member, predicts] : stack_kinds) {
    if (std::find(model.stacks.begin(), model.stacks.end(), stack) != model.stacks.end()) {
      continue;
    }
    // A resolved configuration gives every key: those with their default are not worth a note.
    StackConfig const usual = ModelConfig().*member;
    auto const add = [&, name_of_stack = stack](char const* name, bool changed) {
      auto const given = model.places.by_key.find(fmt::format("{}_{}", name_of_stack, name));
      if (changed && given != model.places.by_key.end()) {
        found.push_back(given->second);
      }
    };
    add("layers", (model.*member).layers != usual.layers);
    add("sublayers", (model.*member).sublayers != usual.sublayers);
    std::string const name(stack);
    std::vector<SettingsGroup> groups{{&(model.*member).settings, name}};
    for (LayerOverride const& entry : (model.*member).overrides) {
      groups.push_back(group_of(entry, name));
    }
    for (auto const& [settings, group] : groups) {
      for (auto const& [key, setting] : *settings) {
        found.push_back(place_of(setting.origin, group + "." + key));
      }
    }
  }
  return found;
}

std::string range_name(IndexRange const& layers) {
  return layers.count() == 1 ? fmt::format("{}", layers.end) : fmt::format("{}-{}", layers.begin + 1, layers.end);
}

std::string stacks_to_toml(ModelConfig const& model) {
  std::string text;
  for (auto const& [name, member, predicts] : stack_kinds) {
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

ModelConfig layer_config(ModelConfig const& model, StackMember stack, std::int64_t layer) {
  ModelConfig result = model;
  std::string const stack_name = name_of(stack);
  result.places.by_key["sublayers"] = model.place(stack_name + "_sublayers");
  for (auto const& [settings, group] : settings_of(model.*stack, stack_name, layer)) {
    for (auto const& [key, setting] : *settings) {
      if (key.find('.') == std::string::npos) {
        std::string const path = group + "." + key;
        apply_setting(key, setting, path, result, result.*stack);
        result.places.by_key[key] = place_of(setting.origin, path);
      }
    }
  }
  return result;
}

LayerOptions layer_options(StackConfig const& stack, std::string const& stack_name, std::int64_t layer,
                           std::string const& sublayer) {
  Settings given;
  for (auto const& [settings, group] : settings_of(stack, stack_name, layer)) {
    for (auto const& [name, setting] : *settings) {
      if (name.starts_with(sublayer + ".")) {
        given[name.substr(sublayer.size() + 1)] = {setting.value, setting.origin,
                                                   fmt::format("model.{}.{}", group, name)};
      }
    }
  }
  return {std::move(given), fmt::format("model.{}.{}", stack_name, sublayer)};
}

}  // namespace heddle
