#pragma once

#include <heddle/core/config/config.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle {

/// The keys of [parallel] and [train] that a layout sets, with their TOML values, as far as they differ from the
/// configuration's.
std::vector<std::pair<std::string, std::string>> layout_edits(Config const& before, Config const& after);

/// A TOML text with other values for some keys, given as "section.key": their lines change, comments and all other
/// lines stay. A key that the text does not have is added to the end of its section, which is added where there is
/// none. Understands one key a line below [section], as Heddle prints them; `source_name` is for messages. Throws
/// ConfigError, and names what to set by hand, if the result does not read as `expected`.
std::string edited_config(std::string_view text, std::string const& source_name,
                          std::vector<std::pair<std::string, std::string>> const& edits, Config const& expected);

}  // namespace heddle
