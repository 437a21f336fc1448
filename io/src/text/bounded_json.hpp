#pragma once

#include <boost/json/value.hpp>
#include <exception>
#include <string>
#include <string_view>

namespace heddle {

/// The value of a JSON text, in at most 512 MiB of memory: some 30 times what the largest tokenizer.json that are known
/// have as text. Throws DataError, which begins with `what`, for a text that needs more or is not JSON.
boost::json::value parse_bounded_json(std::string_view text, std::string_view what);

/// The message of an error, without the place in a library's source that Boost.JSON adds.
std::string plain_message(std::exception const& error);

}  // namespace heddle
