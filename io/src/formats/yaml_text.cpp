#include "yaml_text.hpp"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <boost/json.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/parse_number.hpp>
#include <heddle/io/text/bounded_json.hpp>

namespace heddle {

namespace {

namespace json = boost::json;

/// A plain scalar is null, a bool, an integer or a number where it looks so; a quoted one, which has the tag "!", a
/// string.
json::value scalar_value(YAML::Node const& node) {
  std::string const& text = node.Scalar();
  if (node.Tag() == "!") {
    return json::string(text);
  }
  if (text == "true" || text == "false") {
    return text == "true";
  }
  if (auto const integer = parse_number<std::int64_t>(text)) {
    return *integer;
  }
  if (auto const number = parse_number<double>(text)) {
    return *number;
  }
  return json::string(text);
}

json::value value_of(YAML::Node const& node) {
  if (node.IsSequence()) {
    json::array list;
    for (YAML::Node const& item : node) {
      list.push_back(value_of(item));
    }
    return list;
  }
  if (node.IsMap()) {
    json::object map;
    for (auto const& entry : node) {
      std::string const& key = entry.first.Scalar();
      if (!map.emplace(key, value_of(entry.second)).second) {
        throw YAML::ParserException(entry.first.Mark(), "duplicate key " + json_quoted(key));
      }
    }
    return map;
  }
  return node.IsScalar() ? scalar_value(node) : json::value();
}

std::string scalar_text(json::value const& value) {
  return value.is_string()   ? yaml_quoted(value.get_string())
         : value.is_double() ? fmt::format("{}", value.get_double())
                             : json::serialize(value);
}

}  // namespace

json::object parse_yaml_map(std::string_view text, std::string const& where) {
  try {
    YAML::Node const node = YAML::Load(std::string(text));
    if (!node.IsMap() && !node.IsNull()) {
      throw YAML::ParserException(YAML::Mark::null_mark(), "expected KEY: VALUE");
    }
    return node.IsMap() ? value_of(node).as_object() : json::object();
  } catch (YAML::Exception const& error) {
    throw DataError("{}: line {}: {}", where, error.mark.line + 1, error.msg);
  }
}

std::string yaml_quoted(std::string_view text) {
  std::string quoted = "\"";
  for (char const letter : text) {
    if (letter == '"' || letter == '\\') {
      quoted += '\\';
    }
    if (static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f) {
      quoted += fmt::format("\\x{:02X}", static_cast<unsigned char>(letter));
    } else {
      quoted += letter;
    }
  }
  return quoted + '"';
}

std::string yaml_text(json::object const& map) {
  std::string text;
  for (auto const& [key, value] : map) {
    if (!value.is_array()) {
      text += fmt::format("{}: {}\n", std::string_view(key), scalar_text(value));
      continue;
    }
    text += fmt::format("{}:{}\n", std::string_view(key), value.get_array().empty() ? " []" : "");
    for (json::value const& item : value.get_array()) {
      text += fmt::format("  - {}\n", scalar_text(item));
    }
  }
  return text;
}

}  // namespace heddle
