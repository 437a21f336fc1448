#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/spelling.hpp>
#include <heddle/core/config/options.hpp>

#include "read_value.hpp"

namespace heddle {
namespace {

using Type = OptionDescription::Type;

config_keys::Range range_of(OptionDescription const& option) {
  return config_keys::between(option.min, option.max);
}

bool holds(OptionDescription const& option, OptionValue const& value) {
  switch (option.type) {
    case Type::flag:
      return std::holds_alternative<bool>(value);
    case Type::integer: {
      std::int64_t count = 0;
      return config_values::read(value, count, range_of(option));
    }
    case Type::number: {
      double number = 0;
      return config_values::read(value, number, range_of(option));
    }
    case Type::text:
      break;
  }
  std::string const* const text = std::get_if<std::string>(&value);
  return text != nullptr && !text->empty() &&
         (option.choices.empty() ||
          std::find(option.choices.begin(), option.choices.end(), *text) != option.choices.end());
}

std::string words_of(OptionDescription const& option) {
  switch (option.type) {
    case Type::flag:
      return config_values::words_of<bool>(config_keys::Unchecked{});
    case Type::integer:
      return config_values::words_of<std::int64_t>(range_of(option));
    case Type::number:
      return config_values::words_of<double>(range_of(option));
    case Type::text:
      break;
  }
  if (option.choices.empty()) {
    return config_values::words_of<std::string>(config_keys::NotEmpty{});
  }
  std::vector<std::string> quoted;
  std::transform(option.choices.begin(), option.choices.end(), std::back_inserter(quoted),
                 [](std::string const& choice) { return config_values::toml_string(choice); });
  return fmt::format("{}", fmt::join(quoted, " or "));
}

/// The names of the keys of a layer: a visitor of visit_layer_keys.
struct LayerKeyNames {
  std::vector<std::string> names;

  template <class Member, class Check>
  void key(char const* name, Member const&, Check const&, char const*) {
    names.emplace_back(name);
  }
};

bool is_layer_key(std::string const& name) {
  LayerKeyNames found;
  ModelConfig model;
  config_keys::visit_layer_keys(found, model);
  return std::find(found.names.begin(), found.names.end(), name) != found.names.end();
}

/// The key of the layer, given that of its sublayer's option: "model.decoder.heads" of
/// "model.decoder.self_attention.heads".
std::string key_of_layer(std::string const& option, std::string const& name) {
  std::size_t const sublayer = option.rfind('.', option.size() - name.size() - 2);
  return option.substr(0, sublayer + 1) + name;
}

std::string right_name(std::string const& option, std::string const& name, std::vector<std::string> const& names) {
  if (is_layer_key(name)) {
    return fmt::format("{} is a key of the whole layer: {}", name, key_of_layer(option, name));
  }
  return names.empty() ? "this layer takes none" : nearest_or_all(name, names);
}

}  // namespace

std::string to_toml(OptionValue const& value) {
  return std::visit(
      [](auto const& held) {
        using Held = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<Held, bool> || std::is_same_v<Held, std::string> ||
                      std::is_same_v<Held, std::vector<std::string>>) {
          return config_values::text_of(held, config_keys::Unchecked{});
        } else {
          return config_values::text_of(held, config_keys::Range{});
        }
      },
      value);
}

std::string LayerOptions::key_of(std::string const& name) const {
  auto const found = given_.find(name);
  return found == given_.end() || found->second.key.empty() ? fmt::format("{}.{}", where_, name) : found->second.key;
}

std::string LayerOptions::place(std::string const& name) const {
  auto const found = given_.find(name);
  return fmt::format("{}{}", found == given_.end() ? "" : found->second.origin + ": ", key_of(name));
}

void LayerOptions::check(std::vector<OptionDescription> const& known) const {
  for (auto const& [name, setting] : given_) {
    auto const found = std::find_if(known.begin(), known.end(),
                                    [&, &key = name](OptionDescription const& option) { return option.name == key; });
    if (found == known.end()) {
      std::vector<std::string> names;
      std::transform(known.begin(), known.end(), std::back_inserter(names),
                     [](OptionDescription const& option) { return option.name; });
      throw ConfigError(fmt::format("{}: there is no option {}; {}", setting.origin, key_of(name),
                                    right_name(key_of(name), name, names)));
    }
    if (!holds(*found, setting.value)) {
      std::string const* const text = std::get_if<std::string>(&setting.value);
      std::string const meant = text == nullptr ? "" : nearest_spelling(*text, found->choices);
      throw ConfigError(
          fmt::format("{} is {}; expected {}{}", place(name), config_values::describe(setting.value), words_of(*found),
                      meant.empty() ? "" : fmt::format("; did you mean {}?", config_values::toml_string(meant))));
    }
  }
}

template <class Value>
Value LayerOptions::get(std::string const& name, Value const& otherwise) const {
  auto const found = given_.find(name);
  if (found == given_.end()) {
    return otherwise;
  }
  if (Value const* const value = std::get_if<Value>(&found->second.value)) {
    return *value;
  }
  if constexpr (std::is_same_v<Value, double>) {
    return static_cast<double>(get<std::int64_t>(name, 0));
  }
  if constexpr (std::is_same_v<Value, std::int64_t>) {
    if (auto const count = config_values::integer_of(found->second.value)) {
      return *count;
    }
  }
  throw ConfigError(
      fmt::format("{} is {}, which is of another type", place(name), config_values::describe(found->second.value)));
}

bool LayerOptions::flag(std::string const& name, bool otherwise) const {
  return get(name, otherwise);
}
std::int64_t LayerOptions::integer(std::string const& name, std::int64_t otherwise) const {
  return get(name, otherwise);
}
double LayerOptions::number(std::string const& name, double otherwise) const {
  return get(name, otherwise);
}
std::string LayerOptions::text(std::string const& name, std::string const& otherwise) const {
  return get(name, otherwise);
}

}  // namespace heddle
