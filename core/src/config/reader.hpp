#pragma once

#include <toml++/toml.h>

#include <heddle/core/config/config.hpp>
#include <map>
#include <optional>

#include "values.hpp"

namespace heddle {

/// A TOML file and its overrides as one table, and where each value of it came from.
class ConfigDocument {
 public:
  ConfigDocument(std::string_view text, std::string_view source_name);

  /// "section.key=value"; see load_config.
  void apply(std::string const& override_text);

  toml::table const& table() const { return table_; }
  /// The value of `section`.`key`, or null where it was not given.
  toml::node const* find(std::string const& section, std::string const& key) const;
  /// "run.toml:3:1" or "--set train.steps=x"; the file's name alone for a key that was not given.
  std::string origin(std::string const& section, std::string const& key) const;
  /// "run.toml:3:1" of a position in the file.
  std::string at(toml::source_position const& position) const;

 private:
  std::string source_name_;
  toml::table table_;
  std::map<std::string, std::string> overridden_;  ///< "section.key" → the override
};

/// Fills a Config from a ConfigDocument: a visitor of `visit_config`.
class ConfigReader {
 public:
  explicit ConfigReader(ConfigDocument const& document) : document_(document) {}

  void section(char const* name, char const*) { section_ = name; }

  template <class Member, class Check>
  void key(char const* name, Member& member, Check const& check, char const*) {
    toml::node const* const node = document_.find(section_, name);
    if (node != nullptr && !read(*node, member, check)) {
      fail(name, *node, config_values::words_of<Member>(check));
    }
  }

 private:
  static bool read(toml::node const& node, bool& member, config_keys::Unchecked const&) {
    return assign(node.value_exact<bool>(), member);
  }

  template <class Count>
  requires config_values::is_count<Count>
  static bool read(toml::node const& node, Count& member, config_keys::Range const& range) {
    if (range.or_auto && node.value_exact<std::string>() == "auto") {
      member = 0;
      return true;
    }
    std::optional<std::int64_t> const value = node.value_exact<std::int64_t>();
    // Beyond 2^53 the range's double and the integer differ, but every upper bound lies below.
    if (!value || !range.holds(static_cast<double>(*value))) {
      return false;
    }
    member = static_cast<Count>(*value);
    return true;
  }

  static bool read(toml::node const& node, double& member, config_keys::Range const& range) {
    std::optional<double> const value = node.is_number() ? node.value<double>() : std::nullopt;
    return value && range.holds(*value) && assign(value, member);
  }

  template <class Check>
  static bool read(toml::node const& node, std::string& member, Check const&) {
    return assign(node.value_exact<std::string>(), member) &&
           !(std::is_same_v<Check, config_keys::NotEmpty> && member.empty());
  }

  template <class Item, class Check>
  static bool read(toml::node const& node, std::vector<Item>& member, Check const& check) {
    toml::array const* const items = node.as_array();
    if (items == nullptr) {
      return false;
    }
    member.clear();
    for (toml::node const& item : *items) {
      if (!read(item, member.emplace_back(), check)) {
        return false;
      }
    }
    return !(std::is_same_v<Check, config_keys::NotEmpty> && member.empty());
  }

  template <class Enum>
  requires std::is_enum_v<Enum>
  static bool read(toml::node const& node, Enum& member, config_keys::Unchecked const&) {
    std::optional<std::string> const name = node.value_exact<std::string>();
    auto const& names = config_keys::names_of<Enum>;
    for (std::size_t i = 0; name && i < names.size(); ++i) {
      if (names[i] == *name) {
        member = static_cast<Enum>(i);
        return true;
      }
    }
    return false;
  }

  template <class Value>
  static bool assign(std::optional<Value> const& value, Value& member) {
    if (value) {
      member = *value;
    }
    return value.has_value();
  }

  [[noreturn]] void fail(char const* name, toml::node const& node, std::string const& right) const;

  ConfigDocument const& document_;
  std::string section_;
};

}  // namespace heddle
