#include "tokenizer_steps/json_members.hpp"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <heddle/core/base/error.hpp>

namespace heddle {

namespace json = boost::json;

json::value const* json_member(json::object const& object, std::string_view key) {
  json::value const* const found = object.if_contains({key.data(), key.size()});
  return found == nullptr || found->is_null() ? nullptr : found;
}

bool json_flag(json::object const& object, std::string_view key, bool absent) {
  json::value const* const found = json_member(object, key);
  return found == nullptr ? absent : found->as_bool();
}

std::string json_string(json::value const& value) {
  return json::value_to<std::string>(value);
}

void refuse_option(std::string const& key, json::value const& value) {
  throw DataError("{} = {} is not supported", key, json::serialize(value).substr(0, 200));
}

}  // namespace heddle
