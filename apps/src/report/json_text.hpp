#pragma once

#include <boost/json/value.hpp>
#include <string>

namespace heddle {

/// The value as JSON, the one form in which Heddle's files have it: a number is the shortest text that reads back as
/// the same double ("3.6", "1e-9"), and null where it is not finite, because JSON has no such numbers.
std::string json_text(boost::json::value const& value);

}  // namespace heddle
