#pragma once

#include <toml++/toml.h>

#include <deque>
#include <heddle/core/config/options.hpp>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace heddle {

/// The values and tables of a TOML file and its overrides by their paths: "model.decoder.layer.4-6.activation". Tables
/// of a list have numbers: "data.stage.1.steps".
class ConfigDocument {
 public:
  struct Entry {
    std::string name;    ///< the path as it was given: "model.decoder.layers" of "model.decoder_layers"
    std::string origin;  ///< "run.toml:3:1", "--set train.steps=x"
    toml::node const* node;

    std::string place() const { return origin + ": " + name; }
  };

  /// `aliases`: other spellings of paths. Throws ConfigError for text that is not TOML and for a key in both spellings.
  ConfigDocument(std::string_view text, std::string_view source_name, std::map<std::string, std::string> aliases);

  /// "section.key=value"; see load_config. Replaces what the path and its other spelling had before.
  void apply(std::string const& override_text);

  std::map<std::string, Entry> const& entries() const { return entries_; }
  /// Where the path was given; the file's name if it was not.
  std::string origin(std::string const& path) const;

 private:
  std::string at(toml::source_position const& position) const;
  void insert(std::string const& name, toml::node const& node, std::string const& origin, bool overrides);
  void insert_all(std::string const& name, toml::table const& table, std::string const& override_origin);
  std::string path_of(std::string const& name) const;

  std::string source_name_;
  std::map<std::string, std::string> aliases_;
  std::deque<toml::table> parsed_;  ///< the file, then one for each override
  std::map<std::string, Entry> entries_;
};

/// The value of a node; none for a table, a date, a time and a mixed list.
std::optional<OptionValue> value_of(toml::node const& node);

/// A short description of a value for messages: its type and, unless it is a list, its text in the file.
std::string describe(toml::node const& node);

}  // namespace heddle
