#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// A value in a JSON text, passed on where it begins.
struct JsonItem {
  enum class Kind : std::uint8_t { object, list, text, integer, other };

  std::vector<std::string> const& keys;  ///< of the objects around it, from the outermost; lists add none
  bool in_list;
  Kind kind;
  std::string_view text;
  std::int64_t integer;
};

/// Passes the values of a JSON text on, one by one and before their contents, and keeps none: a forged text takes no
/// more memory than `take` keeps. A key that an object has twice is passed on twice. Throws DataError, which begins
/// with `where`, unless the text is UTF-8 and one JSON value; what `take` throws passes through.
void read_json_items(std::string_view text, std::string const& where, std::function<void(JsonItem const&)> const& take);

/// A string in JSON's quotation marks, its control characters escaped: for files, and for names in messages.
std::string json_quoted(std::string_view text);

}  // namespace heddle
