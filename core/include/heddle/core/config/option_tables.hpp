#pragma once

#include <heddle/core/config/options.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// A table of a TOML file: `[name]` and its keys.
struct OptionTable {
  std::string name;
  std::string origin;  ///< "rules.toml:3:2"
  LayerOptions options;
};

/// The tables of a TOML file in which each key belongs to a table, by their names; `source_name` is the file's name in
/// messages. Throws ConfigError, with file and line, for text that is not TOML, a key outside of tables, a table within
/// one, and a value that is not a boolean, a number, a string or a list.
std::vector<OptionTable> read_option_tables(std::string_view text, std::string const& source_name);

}  // namespace heddle
