#include "json_text.hpp"

#include <fmt/format.h>

#include <bit>
#include <boost/json.hpp>
#include <cmath>

namespace heddle {

namespace {

namespace json = boost::json;

void append(std::string& text, json::value const& value);

/// The shortest text that reads back equal, an exponent without plus sign and leading zero: 1e-9, not 1e-09.
std::string number_text(double number) {
  if (!std::isfinite(number)) {
    return "null";
  }
  std::string text = fmt::format("{}", number);
  if (std::size_t const exponent = text.find('e'); exponent != std::string::npos) {
    std::size_t const sign = text[exponent + 1] == '-' ? 1 : 0;
    std::size_t const digits = text.find_first_not_of("+-0", exponent + 1);
    text.erase(exponent + 1 + sign, digits - exponent - 1 - sign);
  }
  return text;
}

void append(std::string& text, json::object const& object) {
  char const* between = "{";
  for (auto const& [key, value] : object) {
    text += between;
    text += json::serialize(json::string(key));
    text += ':';
    append(text, value);
    between = ",";
  }
  text += object.empty() ? "{}" : "}";
}

void append(std::string& text, json::array const& array) {
  char const* between = "[";
  for (json::value const& value : array) {
    text += between;
    append(text, value);
    between = ",";
  }
  text += array.empty() ? "[]" : "]";
}

void append(std::string& text, json::value const& value) {
  if (json::object const* const object = value.if_object()) {
    append(text, *object);
  } else if (json::array const* const array = value.if_array()) {
    append(text, *array);
  } else if (double const* const number = value.if_double()) {
    text += number_text(*number);
  } else {
    text += json::serialize(value);
  }
}

}  // namespace

std::string json_text(json::value const& value) {
  std::string text;
  append(text, value);
  return text;
}

double number_of(json::object const& object, std::string_view key) {
  auto const* const value = object.if_contains(key);
  return value != nullptr && value->is_number() ? value->to_number<double>() : 0;
}

std::int64_t bits_of(double number) {
  return std::bit_cast<std::int64_t>(number);
}

double number_of_bits(boost::json::value const& bits) {
  return std::bit_cast<double>(bits.to_number<std::int64_t>());
}

std::string_view text_of(json::object const& object, std::string_view key) {
  auto const* const value = object.if_contains(key);
  return value != nullptr && value->is_string() ? std::string_view(value->get_string()) : std::string_view();
}

json::object const& object_of(json::object const& object, std::string_view key) {
  static json::object const none;
  auto const* const value = object.if_contains(key);
  return value != nullptr && value->is_object() ? value->get_object() : none;
}

}  // namespace heddle
