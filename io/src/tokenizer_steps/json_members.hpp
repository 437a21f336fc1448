#pragma once

#include <boost/json/fwd.hpp>
#include <string>
#include <string_view>

namespace heddle {

/// A member of an object that is neither missing nor null.
boost::json::value const* json_member(boost::json::object const& object, std::string_view key);
/// The boolean at a key, `absent` where there is none. Throws what Boost.JSON throws for a value of another kind.
bool json_flag(boost::json::object const& object, std::string_view key, bool absent = false);
std::string json_string(boost::json::value const& value);
/// Throws DataError for an option that a tokenizer does not have here.
[[noreturn]] void refuse_option(std::string const& key, boost::json::value const& value);

}  // namespace heddle
