#include "tokenizer_steps/json_members.hpp"

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

std::string json_text(json::object const& object, std::string_view key, std::string const& absent) {
  json::value const* const found = json_member(object, key);
  return found == nullptr ? absent : json_string(*found);
}

std::string json_string(json::value const& value) {
  return json::value_to<std::string>(value);
}

void refuse_option(std::string const& key, json::value const& value) {
  throw DataError("{} = {} is not supported", key, json::serialize(value).substr(0, 200));
}

std::string replacement_text(json::value const& value) {
  std::string text = json_string(value);
  if (text.size() > max_replacement_bytes) {
    throw DataError("a step of the tokenizer puts {} bytes in place of others; {} at most are read", text.size(),
                    max_replacement_bytes);
  }
  return text;
}

void require_growth(char const* part, std::size_t before, std::size_t now) {
  constexpr std::size_t max_growth = 64;  // bytes for one byte: far more than in any known tokenizer
  constexpr std::size_t max_short_bytes = std::size_t{64} << 10U;
  if (now > max_short_bytes && now / max_growth > before) {
    throw DataError("the vocabulary's {} makes {} bytes of a text of {}", part, now, before);
  }
}

void require_patterns(std::size_t count) {
  constexpr std::size_t max_patterns = 16;
  if (count > max_patterns) {
    throw DataError("{} regular expressions, each of which would go through the text; {} at most are read", count,
                    max_patterns);
  }
}

}  // namespace heddle
