#pragma once

#include <toml++/toml.h>

#include <heddle/core/config/options.hpp>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// A TOML file and its overrides as one table, with the origin of each value. Keys of tables inside sections have
/// paths with dots ("decoder.layer.4-6.activation").
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
  /// Sets a key below `table_`, making the tables on the way.
  void set(std::string const& section, std::vector<std::string> const& path, toml::node const& value,
           std::string const& where);
  /// Removes the file's or an earlier override's other spelling of a key of [model] that an override gives.
  void drop_other_spelling(std::string const& key, toml::node const& value);

  std::string source_name_;
  toml::table table_;
  std::map<std::string, std::string> overridden_;  ///< "section.key" → the override
};

/// The value of a node; none for a table, a date, a time and a mixed list.
std::optional<OptionValue> value_of(toml::node const& node);

/// A short description of a value for a message: its type and, if short, its text in the file.
std::string describe(toml::node const& node);

/// The parts of a path between its dots.
std::vector<std::string> parts_of(std::string const& path);

}  // namespace heddle
