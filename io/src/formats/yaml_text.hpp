#pragma once

#include <boost/json/object.hpp>
#include <string>
#include <string_view>

/// The part of YAML that Marian's files have: one map of scalars and of lists of scalars, in block or flow style, with
/// plain, single- or double-quoted strings, long keys after "? ", and comments.
namespace heddle {

/// The map. Plain scalars are null, bools, integers or numbers where they look so, quoted ones texts; so are all keys.
/// Throws DataError, which begins with `where` and names the line, for what is not of that part, and for a key twice.
boost::json::object parse_yaml_map(std::string_view text, std::string const& where);

/// A text in double quotes.
std::string yaml_quoted(std::string_view text);
/// The map as text: scalars and lists of scalars.
std::string yaml_text(boost::json::object const& map);

}  // namespace heddle
