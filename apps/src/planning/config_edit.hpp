#pragma once

#include <heddle/core/config/config.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// A TOML text with other values for some keys, the `after` of `edits`: their lines change, comments and all other
/// lines stay. A key that the text does not have is added to the end of its section, which is added where there is
/// none. Understands one key a line below [section], as Heddle prints them; `source_name` is for messages. Throws
/// ConfigError, and names what to set by hand, if the result does not read as `expected`.
std::string edited_config(std::string_view text, std::string const& source_name,
                          std::vector<ConfigDifference> const& edits, Config const& expected);

}  // namespace heddle
