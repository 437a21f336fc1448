#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cctype>
#include <heddle/core/base/error.hpp>
#include <heddle/core/parameters/update_rules.hpp>
#include <heddle/io/exchange/family.hpp>
#include <map>
#include <optional>
#include <set>

namespace heddle {

namespace {

namespace json = boost::json;

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t at = 0; at != text.npos;) {
    std::size_t const end = text.find(separator);
    parts.push_back(text.substr(0, end));
    at = end;
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
  }
  return parts;
}

std::string list_of_families() {
  std::string names;
  for (Family const& family : families()) {
    names.append(names.empty() ? "" : ", ").append(family.model_type);
  }
  return names;
}

bool equal(json::value const& one, json::value const& other) {
  return one.is_number() && other.is_number() ? one.to_number<double>() == other.to_number<double>() : one == other;
}

/// TOML text of a JSON value.
std::string toml_of(json::value const& value) {
  if (value.is_double()) {
    std::string const text = fmt::format("{}", value.get_double());
    return text.find_first_of(".e") == text.npos ? text + ".0" : text;
  }
  return json::serialize(value);
}

/// TOML text without the quotes of a string, which `--set` does not need.
std::string plain(std::string_view text) {
  bool const quoted = text.size() > 1 && text.front() == '"' && text.back() == '"';
  return std::string(quoted ? text.substr(1, text.size() - 2) : text);
}

/// The value of a rule's key, or the one that stands for it; nothing if ours is then not set.
std::optional<json::value> value_of(KeyRule const& rule, Family const& family, json::object const& config) {
  for (std::string_view const name : split(rule.theirs, '|')) {
    if (json::value const* const found = find_key(config, name)) {
      return *found;
    }
  }
  if (rule.absent.starts_with('@')) {
    std::string_view const other = rule.absent.substr(1);
    auto const source = std::ranges::find(family.keys, other, &KeyRule::theirs);
    return source == family.keys.end() ? std::nullopt : value_of(*source, family, config);
  }
  return rule.absent.empty() ? std::nullopt : std::optional(json::parse(rule.absent));
}

/// Our value, as TOML text, of a value of theirs.
std::string translated(KeyRule const& rule, Family const& family, json::value const& value) {
  if (rule.values.empty()) {
    if (rule.surplus != 0 && value.is_int64() && value.get_int64() >= 0) {
      return std::to_string(value.get_int64() - rule.surplus);
    }
    return toml_of(value);
  }
  std::vector<std::string_view> accepted;
  for (KeyRule::Value const& known : rule.values) {
    if (equal(json::parse(known.theirs), value)) {
      return std::string(known.ours);
    }
    accepted.push_back(known.theirs);
  }
  throw ConfigError(fmt::format("{}: {} = {} cannot be imported; possible is {}", family.source,
                                split(rule.theirs, '|').front(), json::serialize(value), fmt::join(accepted, ", ")));
}

/// Our value of a key: of its stack, else of [model]; nothing for an option that is not set.
std::optional<std::string> our_value(std::map<std::string, std::string> const& values, std::string const& key) {
  if (auto const found = values.find(key); found != values.end()) {
    return plain(found->second);
  }
  for (StackKind const& kind : stack_kinds) {
    std::string const table = fmt::format("model.{}.", kind.name);
    if (key.starts_with(table) && key.find('.', table.size()) == key.npos) {
      return our_value(values, "model." + key.substr(table.size()));
    }
  }
  return std::nullopt;
}

/// The values of our keys, with those that stand for options which are not set.
struct OurValues {
  Family const& family;
  ModelConfig const& model;
  std::map<std::string, std::string> given;

  OurValues(Family const& of, Config const& config) : family(of), model(config.model), given(key_values(config)) {}
  /// The value of a key, as the other our_value finds it; nothing if no value stands for it.
  std::optional<std::string> of(std::string const& key) const;
};

std::optional<std::string> OurValues::of(std::string const& key) const {
  auto value = our_value(given, key);
  if (!value) {
    auto const rule =
        std::ranges::find_if(family.keys, [&](KeyRule const& each) { return each.ours == key && each.unset; });
    value = rule == family.keys.end() ? std::nullopt : std::optional(std::to_string(rule->unset(model)));
  }
  return value;
}

/// Keys that change neither the parameters nor what they compute.
bool is_free(std::string const& key) {
  return key.ends_with("dropout") || key == "model.recompute" || key == "model.max_length" ||
         !key.starts_with("model.");
}

/// Throws ConfigError for a key of ours that the config.json made of them does not give back.
void require_expressed(Family const& family, Config const& config, json::object const& made) {
  Config const again = parse_config("", "config.json", settings_of(family, made));
  OurValues const before(family, config);
  OurValues const after(family, again);
  std::set<std::string> keys;
  for (OurValues const* const each : {&before, &after}) {
    for (auto const& [key, value] : each->given) {
      keys.insert(key);
    }
  }
  auto const& stacks = config.model.stacks;
  auto const is_used = [&](std::string const& key) {
    // A key of a stack that the model has, or of [model] unless all stacks have their own.
    std::string const name = key.substr(key.find('.') + 1);
    bool const of_stack = std::ranges::any_of(
        stack_kinds, [&](StackKind const& kind) { return name.starts_with(kind.name) && name != kind.name; });
    return of_stack ? std::ranges::any_of(stacks, [&](auto const& stack) { return name.starts_with(stack); })
                    : !std::ranges::all_of(stacks, [&](auto const& stack) {
                        return keys.contains(fmt::format("model.{}.{}", stack, name));
                      });
  };
  for (std::string const& key : keys) {
    auto const wanted = before.of(key);
    auto const possible = after.of(key);
    if (!is_free(key) && is_used(key) && wanted != possible) {
      throw ConfigError(fmt::format("{} = {}: a model of the family {} has {}", key, wanted.value_or("(not set)"),
                                    family.model_type, possible.value_or("no such key")));
    }
  }
}

/// The number of a layer in a name that a pattern with at most one "{}" matches; "" without a layer.
std::optional<std::string> layer_in(std::string_view pattern, std::string const& name) {
  std::size_t const hole = pattern.find("{}");
  if (hole == pattern.npos) {
    return pattern == name ? std::optional(std::string()) : std::nullopt;
  }
  std::string_view const end = pattern.substr(hole + 2);
  if (name.size() <= hole + end.size() || !name.starts_with(pattern.substr(0, hole)) || !name.ends_with(end)) {
    return std::nullopt;
  }
  std::string const number = name.substr(hole, name.size() - hole - end.size());
  bool const digits = std::ranges::all_of(number, [](unsigned char letter) { return std::isdigit(letter) != 0; });
  return digits ? std::optional(number) : std::nullopt;
}

}  // namespace

Family const& family_of(json::object const& config) {
  json::value const* const type = find_key(config, "model_type");
  if (type == nullptr || !type->is_string()) {
    throw DataError("config.json has no model_type; expected one of: " + list_of_families());
  }
  auto const found = std::ranges::find(families(), std::string_view(type->get_string()), &Family::model_type);
  if (found == families().end()) {
    throw DataError(fmt::format("config.json: models of the type {} cannot be imported; possible are: {}",
                                json::serialize(*type), list_of_families()));
  }
  return *found;
}

Family const& family_named(std::string const& model_type) {
  auto const found = std::ranges::find(families(), model_type, &Family::model_type);
  if (found == families().end()) {
    throw UsageError(fmt::format("there is no family \"{}\"; expected one of: {}", model_type, list_of_families()));
  }
  return *found;
}

json::value const* find_key(json::object const& config, std::string_view path) {
  std::size_t const dot = path.find('.');
  json::value const* const found = config.if_contains(path.substr(0, dot));
  if (found == nullptr || found->is_null()) {
    return nullptr;
  }
  if (dot == path.npos) {
    return found;
  }
  return found->is_object() ? find_key(found->get_object(), path.substr(dot + 1)) : nullptr;
}

std::vector<std::string> settings_of(Family const& family, json::object const& config) {
  std::vector<std::string> settings(family.settings.begin(), family.settings.end());
  for (KeyRule const& rule : family.keys) {
    if (auto const value = value_of(rule, family, config)) {
      std::string const ours = translated(rule, family, *value);
      if (!rule.ours.empty()) {
        settings.push_back(fmt::format("{}={}", rule.ours, ours));
      }
    }
  }
  return settings;
}

json::object config_json(Family const& family, Config const& config) {
  json::object made{{"architectures", json::array{json::string(family.architecture)}},
                    {"model_type", json::string(family.model_type)},
                    {"torch_dtype", "float32"}};
  OurValues const values(family, config);
  for (KeyRule const& rule : family.keys) {
    std::string_view const name = split(rule.theirs, '|').front();
    if (made.contains(name) || name.find('.') != name.npos) {
      continue;
    }
    if (rule.ours.empty()) {
      made[name] = json::parse(rule.values.front().theirs);
      continue;
    }
    auto const ours = values.of(std::string(rule.ours));
    if (!ours) {
      continue;
    }
    auto const known = std::ranges::find_if(rule.values, [&](auto const& value) { return plain(value.ours) == *ours; });
    if (known != rule.values.end()) {
      made[name] = json::parse(known->theirs);
    } else if (rule.values.empty() && rule.surplus != 0) {
      made[name] = std::stoll(*ours) + rule.surplus;
    } else if (rule.values.empty()) {
      made[name] = json::parse(*ours);
    } else {
      throw ConfigError(
          fmt::format("{} = {}: models of the family {} do not have that", rule.ours, *ours, family.model_type));
    }
  }
  require_expressed(family, config, made);
  return made;
}

TensorOrigin origin_of(Family const& family, ModelConfig const& model, std::string const& parameter) {
  for (TensorRule const& rule : family.tensors) {
    auto const layer = layer_in(rule.ours, parameter);
    if (!layer || (rule.where != nullptr && !rule.where(model))) {
      continue;
    }
    std::vector<std::string> names;
    for (std::string_view const theirs : split(rule.theirs, '|')) {
      std::string& name = names.emplace_back(theirs);
      if (std::size_t const hole = name.find("{}"); hole != name.npos) {
        name.replace(hole, 2, std::to_string(std::stoll(*layer) + family.first_layer));
      }
    }
    return {names.front(), rule.change, {names.begin() + 1, names.end()}};
  }
  throw DataError(
      fmt::format("models of the family {} have no tensor for the parameter {}", family.model_type, parameter));
}

bool is_ignored(Family const& family, std::string const& tensor) {
  return std::ranges::any_of(family.ignored,
                             [&](std::string_view pattern) { return matches_pattern(pattern, tensor); });
}

}  // namespace heddle
