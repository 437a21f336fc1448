#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/config/json_schema.hpp>
#include <limits>
#include <map>
#include <string_view>

#include "schema.hpp"

// The configuration as a JSON schema. Drafts later than 4 are not used, because editors of TOML read that one. TOML and
// JSON write the values that keys have in one way: to_toml.
namespace heddle {
namespace {

using Type = OptionDescription::Type;

std::string range_of(OptionDescription const& option) {
  std::string text = fmt::format(R"(, "minimum": {})", to_toml(option.min));
  text += option.above_min ? R"(, "exclusiveMinimum": true)" : "";
  if (option.max < std::numeric_limits<double>::infinity()) {
    text += fmt::format(R"(, "maximum": {})", to_toml(option.max));
    text += option.below_max ? R"(, "exclusiveMaximum": true)" : "";
  }
  return text;
}

/// The members that say which values are accepted, as OptionDescription::converted does.
std::string accepted_values(OptionDescription const& option) {
  // A number without a fraction, as in steps = 1e6, is an integer.
  std::string const integer = R"("type": "number", "multipleOf": 1)" + range_of(option);
  std::string const string = fmt::format(R"("type": "string"{})", option.may_be_empty ? "" : R"(, "minLength": 1)");
  std::string const strings =
      fmt::format(R"("type": "array"{}, "items": {{{}}})", option.may_be_empty ? "" : R"(, "minItems": 1)", string);
  switch (option.type) {
    case Type::boolean:
      return R"("type": "boolean")";
    case Type::integer:
      return option.or_auto ? fmt::format(R"("anyOf": [{{{}}}, {{"enum": ["auto"]}}])", integer) : integer;
    case Type::number:
      return R"("type": "number")" + range_of(option);
    case Type::string:
      return option.choices.empty() ? string : fmt::format(R"("enum": {})", to_toml(option.choices));
    case Type::integers:
      return fmt::format(R"("type": "array", "items": {{{}}})", integer);
    case Type::strings:
      return option.one_or_several ? fmt::format(R"("anyOf": [{{"type": "string"}}, {{{}}}])", strings) : strings;
    case Type::any:
      break;
  }
  return R"("type": ["boolean", "number", "string", "array"])";
}

std::string schema_of(ConfigKey const& key) {
  OptionDescription const& option = key.description;
  auto const value = key.get();
  return fmt::format(R"({{{}{}{}}})", accepted_values(option),
                     option.meaning.empty() ? "" : R"(, "description": )" + to_toml(option.meaning),
                     value ? R"(, "default": )" + to_toml(*value) : "");
}

/// A table of the file: its keys and inner tables with their schemas, and the schema of members with other names.
struct Object {
  std::string meaning = {};
  std::map<std::string, std::string> keys = {};
  std::map<std::string, Object> tables = {};
  std::string others = "false";
  bool any_name = false;  ///< the one table in it describes tables of any name
  bool is_list = false;   ///< the one table in it describes the tables of a list

  std::string text(std::string const& indent) const {
    std::string const inner = indent + "  ";
    if (is_list) {
      return fmt::format("{{\"type\": \"array\", \"items\": {}}}", tables.begin()->second.text(inner));
    }
    std::vector<std::string> members;
    for (auto const& [name, schema] : keys) {
      members.push_back(fmt::format("{}  {}: {}", inner, to_toml(name), schema));
    }
    for (auto const& [name, table] : tables) {
      if (!any_name) {
        members.push_back(fmt::format("{}  {}: {}", inner, to_toml(name), table.text(inner + "  ")));
      }
    }
    std::string text = "{\"type\": \"object\", ";
    text += meaning.empty() ? "" : fmt::format("\"description\": {}, ", to_toml(meaning));
    if (!members.empty()) {
      text += fmt::format("\"properties\": {{\n{}\n{}}}, ", fmt::join(members, ",\n"), inner);
    }
    return text + fmt::format("\"additionalProperties\": {}}}", any_name ? tables.begin()->second.text(inner) : others);
  }
};

/// The table with this path; tables that hold it are made where they are not there.
Object& table_at(Object& root, std::string_view path) {
  Object* table = &root;
  while (!path.empty()) {
    std::size_t const end = std::min(path.find('.'), path.size());
    table = &table->tables[std::string(path.substr(0, end))];
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return *table;
}

/// The schema of members that a table may have beside its keys.
std::string other_members(ConfigTable const& table) {
  if (!table.other) {
    return "false";
  }
  auto const other = table.other("x");
  if (table.holds_settings) {
    return other ? R"({"type": ["number", "object"], "minimum": 0, "maximum": 1, "description": "a rate, or options"})"
                 : R"({"type": "object", "description": "options of a sublayer; `heddle kernels` lists them"})";
  }
  return other ? schema_of(*other) : "false";
}

}  // namespace

std::string config_json_schema() {
  Config example;
  constexpr char const* name = "1";  // also a range of layers
  for (NamedTables const& tables : config_tree(example).named) {
    tables.add(name);
  }
  ConfigTree const tree = config_tree(example);
  Object root{.meaning = "A training run of Heddle"};
  for (ConfigTable const& table : tree.tables) {
    Object& object = table_at(root, table.path);
    object.meaning = table.meaning;
    object.others = other_members(table);
    for (ConfigKey const& key : table.keys) {
      object.keys[key.description.name] = schema_of(key);
    }
  }
  for (auto const& [alias, key] : tree.aliases) {
    std::size_t const dot = key.rfind('.');
    std::size_t const end = alias.rfind('.');
    auto const& keys = table_at(root, key.substr(0, dot)).keys;
    table_at(root, alias.substr(0, end)).keys[alias.substr(end + 1)] = keys.at(key.substr(dot + 1));
  }
  for (NamedTables const& tables : tree.named) {
    Object& table = table_at(root, tables.path);
    (tables.numbered ? table.is_list : table.any_name) = true;
  }
  std::string const text = root.text("");
  return R"({"$schema": "http://json-schema.org/draft-04/schema#", )" + text.substr(1) + "\n";
}

}  // namespace heddle
