#include "page.hpp"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <initializer_list>
#include <utility>
#include <vector>

#include "run/directory/json_text.hpp"

namespace heddle {
namespace {

std::string replaced(std::string_view text, std::initializer_list<std::pair<char, std::string_view>> replacements) {
  std::string result;
  result.reserve(text.size() + text.size() / 16);
  for (char const character : text) {
    auto const found = std::ranges::find(replacements, character, &std::pair<char, std::string_view>::first);
    result += found == replacements.end() ? std::string_view(&character, 1) : found->second;
  }
  return result;
}

}  // namespace

std::string json_for_script(boost::json::value const& value) {
  // Outside its strings JSON has none of these characters, so each may become an escape sequence.
  return replaced(json_text(value), {{'<', "\\u003c"}, {'>', "\\u003e"}, {'&', "\\u0026"}});
}

std::string assemble_page(std::string_view title, boost::json::value const& data) {
  constexpr std::string_view title_place = "{{title}}";
  constexpr std::string_view data_place = "{{data}}";
  std::string_view const frame = page_frame();
  std::size_t const first = frame.find(title_place);
  std::size_t const second = frame.find(data_place);
  std::string_view const between = frame.substr(first + title_place.size(), second - first - title_place.size());
  return fmt::format("{}{}{}{}{}", frame.substr(0, first),
                     replaced(title, {{'<', "&lt;"}, {'>', "&gt;"}, {'&', "&amp;"}, {'"', "&quot;"}, {'\'', "&#39;"}}),
                     between, json_for_script(data), frame.substr(second + data_place.size()));
}

boost::json::object matrix_to_json(std::span<double const> values, std::int64_t columns, ValueRange const& range) {
  auto const size = static_cast<std::int64_t>(values.size());
  if (columns < 1 || size % columns != 0) {
    throw Error("a matrix to draw has {} values in rows of {}", size, columns);
  }
  constexpr double steps = 65535;
  std::vector<unsigned char> bytes;
  bytes.reserve(2 * values.size());
  for (double const value : values) {
    if (!std::isfinite(value)) {
      throw Error("a matrix to draw has values that are not finite");
    }
    double const share = std::clamp((value - range.min) / (range.max - range.min), 0.0, 1.0);
    auto const step = static_cast<unsigned>(std::lround(steps * share));
    bytes.push_back(static_cast<unsigned char>(step & 0xFFU));
    bytes.push_back(static_cast<unsigned char>(step >> 8U));
  }
  return {{"rows", size / columns},
          {"columns", columns},
          {"min", range.min},
          {"max", range.max},
          {"values", base64(bytes)}};
}

std::string base64(std::span<unsigned char const> bytes) {
  std::string text((bytes.size() + 2) / 3 * 4, '\0');
  EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()), bytes.data(), static_cast<int>(bytes.size()));
  return text;
}

}  // namespace heddle
