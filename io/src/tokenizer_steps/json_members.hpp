#pragma once

#include <boost/json/fwd.hpp>
#include <cstddef>
#include <string>
#include <string_view>

// The options of a tokenizer.json, and limits for those of hostile files.

namespace heddle {

/// A member of an object that is neither missing nor null.
boost::json::value const* json_member(boost::json::object const& object, std::string_view key);
/// The boolean at a key, `absent` where there is none. Throws what Boost.JSON throws for a value of another kind.
bool json_flag(boost::json::object const& object, std::string_view key, bool absent = false);
/// The string at a key, `absent` where there is none. Throws as json_flag does.
std::string json_text(boost::json::object const& object, std::string_view key, std::string const& absent);
std::string json_string(boost::json::value const& value);
/// Throws DataError for an option that a tokenizer does not have here.
[[noreturn]] void refuse_option(std::string const& key, boost::json::value const& value);

/// Bytes that a step of a tokenizer.json puts in place of others: far more than any known vocabulary has.
constexpr std::size_t max_replacement_bytes = 1024;
/// The text that a step puts in place of another. Throws DataError for one of more than max_replacement_bytes.
std::string replacement_text(boost::json::value const& value);
/// Throws DataError where a step of `part` has made `now` bytes of a text of `before`, which only hostile ones do.
void require_growth(char const* part, std::size_t before, std::size_t now);
/// Throws DataError for more expressions, by which one tokenizer splits or changes a text, than 16: known vocabularies
/// have two of some hundred characters.
void require_patterns(std::size_t count);

}  // namespace heddle
