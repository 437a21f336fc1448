#include "matrix.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <vector>

namespace heddle {

ValueRange range_of(std::span<double const> values) {
  if (!std::ranges::all_of(values, [](double value) { return std::isfinite(value); })) {
    throw Error("a matrix to draw has values that are not finite");
  }
  if (values.empty()) {
    return {};
  }
  auto const [min, max] = std::ranges::minmax(values);
  return max > min ? ValueRange{min, max} : ValueRange{min, min + 1};
}

boost::json::object matrix_to_json(std::span<double const> values, std::int64_t columns, ValueRange const& range) {
  auto const size = static_cast<std::int64_t>(values.size());
  if (columns < 1 || size % columns != 0) {
    throw Error(fmt::format("a matrix to draw has {} values in rows of {}", size, columns));
  }
  constexpr double steps = 65535;
  std::vector<unsigned char> bytes;
  bytes.reserve(2 * values.size());
  for (double const value : values) {
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
  constexpr char const* digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    std::size_t const count = std::min<std::size_t>(3, bytes.size() - at);
    unsigned group = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      group = group << 8U | (i < count ? bytes[at + i] : 0U);
    }
    for (std::size_t i = 0; i < 4; ++i) {
      text += i <= count ? digits[group >> (18U - 6U * static_cast<unsigned>(i)) & 0x3FU] : '=';
    }
  }
  return text;
}

}  // namespace heddle
