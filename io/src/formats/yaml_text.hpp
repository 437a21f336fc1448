#pragma once

#include <boost/json/object.hpp>
#include <string>
#include <string_view>

/// YAML as JSON values, which Marian's and OpusTrainer's files are.
namespace heddle {

/// The map in a document. Plain scalars are null, bools, integers or numbers where they look so, quoted ones strings;
/// so are all keys. Throws DataError, which begins with `where` and names the line, for what is not YAML, what is not a
/// map, and for a key twice. yaml-cpp takes a quotation that does not end for one that ends with the text.
boost::json::object parse_yaml_map(std::string_view text, std::string const& where);

/// A text in double quotes.
std::string yaml_quoted(std::string_view text);
/// The map as text: scalars and lists of scalars.
std::string yaml_text(boost::json::object const& map);

}  // namespace heddle
