#include "tokenizer_steps/step_limits.hpp"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <heddle/core/base/error.hpp>

#include "tokenizer_steps/json_members.hpp"

namespace heddle {

std::string replacement_text(boost::json::value const& value) {
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
  if (count > max_patterns) {
    throw DataError("{} regular expressions, each of which would go through the text; {} at most are read", count,
                    max_patterns);
  }
}

}  // namespace heddle
