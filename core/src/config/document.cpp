#include "document.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <utility>

#include "key_names.hpp"
#include "stacks.hpp"
#include "values.hpp"

namespace heddle {
namespace {

/// A value in the form of the command line: TOML, or a text without its quotes.
toml::table parse_override_value(std::string const& value, std::string const& where) {
  try {
    return toml::parse("value = " + value);
  } catch (toml::parse_error const&) {
    // An error here means a text without quotes; but a mistyped list or string is reported, not taken for a text.
    if (value.empty() || value.find_first_of("[\"'{") == 0 || value.find('\n') != std::string::npos) {
      throw ConfigError(where + ": the value is no TOML value; for example 3, 0.1, true, \"text\", [\"a\", \"b\"]");
    }
  }
  try {
    return toml::parse("value = " + config_values::toml_string(value));
  } catch (toml::parse_error const& error) {
    throw ConfigError(fmt::format("{}: {}", where, error.description()));
  }
}

/// A key without the quotes of its parts: decoder.layer."4-6".heads is decoder.layer.4-6.heads. Throws ConfigError for
/// a part with a dot, which cannot be told from two parts.
std::string without_quotes(std::string const& key, std::string const& where) {
  std::string plain;
  bool quoted = false;
  for (char const letter : key) {
    if (letter == '.' && quoted) {
      throw ConfigError(where + ": a name with a dot can be given in the file only");
    }
    if (letter == '"') {
      quoted = !quoted;
    } else {
      plain += letter;
    }
  }
  if (quoted) {
    throw ConfigError(where + ": a quotation mark of the key has no second one");
  }
  return plain;
}

}  // namespace

std::string describe(toml::node const& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return node.as_array()->empty() ? "an empty list" : "a list";
    case toml::node_type::string:
      return fmt::format("the text {}", config_values::toml_string(**node.as_string()));
    case toml::node_type::integer:
      return fmt::format("the integer {}", **node.as_integer());
    case toml::node_type::floating_point:
      return fmt::format("the number {}", config_values::text_of(**node.as_floating_point(), config_keys::Range{}));
    case toml::node_type::boolean:
      return fmt::format("the truth value {}", **node.as_boolean());
    default:
      return "a date or time";
  }
}

ConfigDocument::ConfigDocument(std::string_view text, std::string_view source_name) : source_name_(source_name) {
  try {
    table_ = toml::parse(text);
  } catch (toml::parse_error const& error) {
    throw ConfigError(fmt::format("{}: no valid TOML: {}", at(error.source().begin), error.description()));
  }
}

void ConfigDocument::apply(std::string const& override_text) {
  std::string const where = "--set " + override_text;
  std::size_t const equals = override_text.find('=');
  std::size_t const dot = override_text.find('.');
  if (equals == std::string::npos || dot == std::string::npos || dot > equals) {
    throw ConfigError(where + ": expected section.key=value, for example train.steps=1000");
  }
  auto const trimmed = [](std::string text) {
    text.erase(0, std::min(text.find_first_not_of(" \t"), text.size()));
    text.erase(text.find_last_not_of(" \t") + 1);
    return text;
  };
  std::string const section = trimmed(override_text.substr(0, dot));
  std::string const key = without_quotes(trimmed(override_text.substr(dot + 1, equals - dot - 1)), where);
  KeyNames().require_known(section, key, where);
  toml::table value = parse_override_value(trimmed(override_text.substr(equals + 1)), where);
  toml::node const* const given = value.get("value");
  if (given == nullptr || value.size() != 1) {
    throw ConfigError(where + ": expected one value");
  }
  if (section == "model") {
    drop_other_spelling(key, *given);
  }
  set(section, parts_of(key), *given, where);
  overridden_[section + "." + key] = where;
}

void ConfigDocument::drop_other_spelling(std::string const& key, toml::node const& value) {
  if (toml::table const* const keys = value.as_table()) {
    for (auto const& [inner, inner_value] : *keys) {
      drop_other_spelling(fmt::format("{}.{}", key, inner.str()), inner_value);
    }
  }
  std::optional<std::string> const other = other_spelling(key);
  if (!other) {
    return;
  }
  std::vector<std::string> const parts = parts_of(*other);
  toml::node* const parent = parts.size() == 1 ? table_.get("model") : table_["model"][parts.front()].node();
  if (parent != nullptr && parent->is_table()) {
    parent->as_table()->erase(parts.back());
  }
  overridden_.erase("model." + *other);
}

void ConfigDocument::set(std::string const& section, std::vector<std::string> const& path, toml::node const& value,
                         std::string const& where) {
  toml::table* keys = table_.emplace<toml::table>(section).first->second.as_table();
  for (std::size_t part = 0; part + 1 < path.size(); ++part) {
    keys = keys->emplace<toml::table>(path[part]).first->second.as_table();
    if (keys == nullptr) {
      throw ConfigError(fmt::format("{}: {} is no table", where, path[part]));
    }
  }
  keys->insert_or_assign(path.back(), value);
}

toml::node const* ConfigDocument::find(std::string const& section, std::string const& key) const {
  toml::node const* node = table_.get(section);
  for (std::string const& part : parts_of(key)) {
    node = node == nullptr || !node->is_table() ? nullptr : node->as_table()->get(part);
  }
  return node;
}

std::string ConfigDocument::origin(std::string const& section, std::string const& key) const {
  std::vector<std::string> parts = parts_of(key);
  for (std::string path = key; !parts.empty(); path = fmt::format("{}", fmt::join(parts, "."))) {
    // All keys of a table given by an override come from that override.
    auto const found = overridden_.find(section + "." + path);
    if (found != overridden_.end()) {
      return found->second;
    }
    parts.pop_back();
  }
  parts = parts_of(key);
  std::string const last = parts.back();
  parts.pop_back();
  toml::node const* node = table_.get(section);
  for (std::string const& part : parts) {
    node = node == nullptr || !node->is_table() ? nullptr : node->as_table()->get(part);
  }
  if (node != nullptr && node->is_table()) {
    auto const entry = node->as_table()->find(last);
    if (entry != node->as_table()->end() && entry->first.source().begin) {
      return at(entry->first.source().begin);
    }
  }
  // A table that the file does not have comes from an override of one of its keys.
  std::string const inside = section + "." + key + ".";
  auto const found = overridden_.lower_bound(inside);
  return found != overridden_.end() && found->first.starts_with(inside) ? found->second : source_name_;
}

std::string ConfigDocument::at(toml::source_position const& position) const {
  return position ? fmt::format("{}:{}:{}", source_name_, position.line, position.column) : source_name_;
}

std::vector<std::string> parts_of(std::string const& path) {
  std::vector<std::string> parts{""};
  for (char const letter : path) {
    if (letter == '.') {
      parts.emplace_back();
    } else {
      parts.back() += letter;
    }
  }
  return parts;
}

std::optional<OptionValue> value_of(toml::node const& node) {
  if (toml::array const* const items = node.as_array()) {
    std::vector<std::int64_t> counts;
    std::vector<std::string> texts;
    for (toml::node const& item : *items) {
      if (item.is_integer()) {
        counts.push_back(**item.as_integer());
      } else if (item.is_string()) {
        texts.push_back(**item.as_string());
      }
    }
    if (texts.size() == items->size()) {
      return texts;
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
