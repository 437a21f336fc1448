#include "page.hpp"

#include <openssl/evp.h>

#include <algorithm>
#include <boost/algorithm/string/replace.hpp>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <utility>
#include <vector>

#include "run/directory/json_text.hpp"

namespace heddle {

std::string json_for_script(boost::json::value const& value) {
  std::string text = json_text(value);
  // Outside its strings JSON has none of these characters, so each may become an escape sequence.
  for (auto const& [mark, escaped] :
       {std::pair("<", "\\u003c"), std::pair(">", "\\u003e"), std::pair("&", "\\u0026")}) {
    boost::replace_all(text, mark, escaped);
  }
  return text;
}

std::string assemble_page(std::string_view title, boost::json::value const& data) {
  std::string text(title);
  for (auto const& [mark, escaped] : {std::pair("&", "&amp;"), std::pair("<", "&lt;"), std::pair(">", "&gt;"),
                                      std::pair("\"", "&quot;"), std::pair("'", "&#39;")}) {
    boost::replace_all(text, mark, escaped);
  }
  std::string page(page_frame());
  boost::replace_first(page, "{{data}}", json_for_script(data));  // before the title, which is above it
  boost::replace_first(page, "{{title}}", text);
  return page;
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
