#pragma once

#include <boost/json.hpp>
#include <string_view>

namespace heddle {

// Values of JSON objects by key. The objects are read from files, which may hold anything.

/// The number there; 0 if there is none.
inline double number_of(boost::json::object const& object, std::string_view key) {
  auto const* const value = object.if_contains(key);
  return value != nullptr && value->is_number() ? value->to_number<double>() : 0;
}

/// The text there, which lives as long as the object; "" if there is none.
inline std::string_view text_of(boost::json::object const& object, std::string_view key) {
  auto const* const value = object.if_contains(key);
  return value != nullptr && value->is_string() ? std::string_view(value->get_string()) : std::string_view();
}

/// The object there; null if there is none.
inline boost::json::object const* object_of(boost::json::object const& object, std::string_view key) {
  auto const* const value = object.if_contains(key);
  return value == nullptr ? nullptr : value->if_object();
}

}  // namespace heddle
