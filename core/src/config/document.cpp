#include "document.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <utility>

namespace heddle {
namespace {

/// A value in the form of the command line: TOML, or a string without its quotes.
toml::table parse_override_value(std::string const& value, std::string const& where) {
  try {
    return toml::parse("value = " + value);
  } catch (toml::parse_error const&) {
    // An error here means a string without quotes; but a mistyped list or string is reported, not taken for a string.
    if (value.empty() || value.find_first_of("[\"'{") == 0 || value.find('\n') != std::string::npos) {
      throw ConfigError(where + ": the value is not a TOML value; for example 3, 0.1, true, \"text\", [\"a\", \"b\"]");
    }
  }
  try {
    return toml::parse("value = " + to_toml(OptionValue(value)));
  } catch (toml::parse_error const& error) {
    throw ConfigError("{}: {}", where, error.description());
  }
}

/// A key without the quotes of its parts: decoder.layer."4-6".heads is decoder.layer.4-6.heads.
std::string without_quotes(std::string key, std::string const& where) {
  if (std::ranges::count(key, '"') % 2 != 0) {
    throw ConfigError(where + ": a quotation mark of the key has no second one");
  }
  std::erase(key, '"');
  return key;
}

std::string trimmed(std::string text) {
  text.erase(0, std::min(text.find_first_not_of(" \t"), text.size()));
  text.erase(text.find_last_not_of(" \t") + 1);
  return text;
}

}  // namespace

std::string describe(toml::node const& node) {
  if (auto const value = value_of(node)) {
    return describe(*value);
  }
  return node.is_table() ? "a table" : node.is_array() ? "a list" : "a date or time";
}

ConfigDocument::ConfigDocument(std::string_view text, std::string_view source_name,
                               std::map<std::string, std::string> aliases)
    : source_name_(source_name), aliases_(std::move(aliases)) {
  try {
    parsed_.push_back(toml::parse(text));
  } catch (toml::parse_error const& error) {
    throw ConfigError("{}: not valid TOML: {}", at(error.source().begin), error.description());
  }
  insert_all("", parsed_.front(), "");
}

void ConfigDocument::apply(std::string const& override_text) {
  std::string const where = "--set " + override_text;
  std::size_t const equals = override_text.find('=');
  std::size_t const dot = override_text.find('.');
  if (equals == std::string::npos || dot == std::string::npos || dot > equals) {
    throw ConfigError(where + ": expected section.key=value, for example train.steps=1000");
  }
  std::string const name = without_quotes(
      trimmed(override_text.substr(0, dot)) + "." + trimmed(override_text.substr(dot + 1, equals - dot - 1)), where);
  toml::table& value = parsed_.emplace_back(parse_override_value(trimmed(override_text.substr(equals + 1)), where));
  if (value.get("value") == nullptr || value.size() != 1) {
    throw ConfigError(where + ": expected one value");
  }
  static toml::table const empty;
  for (std::size_t end = name.find('.'); end != std::string::npos; end = name.find('.', end + 1)) {
    std::string const parent = name.substr(0, end);
    Entry const& entry = entries_.try_emplace(parent, Entry{parent, where, &empty}).first->second;
    if (!entry.node->is_table() && !entry.node->is_array_of_tables()) {
      throw ConfigError("{}: {} is not a table", where, parent);
    }
  }
  std::erase_if(entries_, [&](auto const& entry) { return entry.second.name.starts_with(name + "."); });
  insert(name, *value.get("value"), where, true);
}

void ConfigDocument::insert(std::string const& name, toml::node const& node, std::string const& origin,
                            bool overrides) {
  Entry const entry{name, origin, &node};
  auto const [found, added] = entries_.try_emplace(path_of(name), entry);
  if (!added && !overrides) {
    Entry const& other = found->second;
    throw ConfigError("{} is also given as {} ({}); leave out one of the two", entry.place(), other.name, other.origin);
  }
  found->second = entry;
  if (toml::array const* const items = node.as_array(); items != nullptr && items->is_array_of_tables()) {
    for (std::size_t index = 0; index < items->size(); ++index) {
      toml::table const& item = *(*items)[index].as_table();
      insert(fmt::format("{}.{}", name, index + 1), item, overrides ? origin : at(item.source().begin), overrides);
    }
  }
  if (node.is_table()) {
    insert_all(name + ".", *node.as_table(), overrides ? origin : "");
  }
}

void ConfigDocument::insert_all(std::string const& name, toml::table const& table, std::string const& override_origin) {
  for (auto const& [key, node] : table) {
    std::string const part(key.str());
    std::string const origin = override_origin.empty() ? at(key.source().begin) : override_origin;
    if (part.empty() || part.find('.') != std::string::npos) {
      throw ConfigError("{}: {} is not a valid name here; a name has letters and no dot", origin,
                        to_toml(OptionValue(name + part)));
    }
    insert(name + part, node, origin, !override_origin.empty());
  }
}

std::string ConfigDocument::path_of(std::string const& name) const {
  auto const alias = aliases_.find(name);
  return alias == aliases_.end() ? name : alias->second;
}

std::string ConfigDocument::origin(std::string const& path) const {
  auto const found = entries_.find(path);
  return found == entries_.end() ? source_name_ : found->second.origin;
}

std::string ConfigDocument::at(toml::source_position const& position) const {
  return position ? fmt::format("{}:{}:{}", source_name_, position.line, position.column) : source_name_;
}

std::optional<OptionValue> value_of(toml::node const& node) {
  if (toml::array const* const items = node.as_array()) {
    std::vector<std::int64_t> counts;
    std::vector<std::string> strings;
    for (toml::node const& item : *items) {
      if (item.is_integer()) {
        counts.push_back(**item.as_integer());
      } else if (item.is_string()) {
        strings.push_back(**item.as_string());
      }
    }
    if (strings.size() == items->size()) {
      return strings;
    }
    return counts.size() == items->size() ? std::optional<OptionValue>(counts) : std::nullopt;
  }
  switch (node.type()) {
    case toml::node_type::string:
      return **node.as_string();
    case toml::node_type::integer:
      return **node.as_integer();
    case toml::node_type::floating_point:
      return **node.as_floating_point();
    case toml::node_type::boolean:
      return **node.as_boolean();
    default:
      return std::nullopt;
  }
}

}  // namespace heddle
