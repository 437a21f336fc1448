#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <string>
#include <string_view>

namespace heddle {

/// The value as JSON, in the form of metrics.jsonl, report.json and the page: a number is the shortest text that reads
/// back as the same double ("3.6", "1e-9"), and null where it is not finite, because JSON has no such numbers.
std::string json_text(boost::json::value const& value);

// Values of JSON objects by key. The objects are read from files, which may hold anything.

/// The number there; 0 if there is none.
double number_of(boost::json::object const& object, std::string_view key);
/// A number as the integer that has its bits: Boost.JSON's parser may read a decimal fraction as a neighbour of it.
std::int64_t bits_of(double number);
/// The number of which this is bits_of. Throws boost::system::system_error for another kind of value.
double number_of_bits(boost::json::value const& bits);
/// The string there, which lives as long as the object; "" if there is none.
std::string_view text_of(boost::json::object const& object, std::string_view key);
/// The object there, which lives as long as the outer one; an empty one if there is none.
boost::json::object const& object_of(boost::json::object const& object, std::string_view key);

}  // namespace heddle
