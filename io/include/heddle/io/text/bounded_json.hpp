#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

// JSON of others, read in bounded memory: as a value, or item by item where no value is needed.

namespace heddle {

/// The value of a JSON text, in at most 512 MiB of memory: some 30 times what the largest tokenizer.json that are known
/// have as text. Of keys that an object has twice the last one counts. Throws DataError, which begins with `where`, for
/// a text that needs more or is not JSON in UTF-8.
boost::json::value parse_bounded_json(std::string_view text, std::string_view where);
/// The same for an object. Throws DataError also for any other value.
boost::json::object json_object_of(std::string_view text, std::string_view where);
/// The object in the file `name`; an empty one if there is no such file.
boost::json::object json_object_in(std::map<std::string, std::string> const& files, std::string const& name);

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

/// The message of an error, without the place in a library's source that Boost.JSON adds.
std::string plain_message(std::exception const& error);

}  // namespace heddle
