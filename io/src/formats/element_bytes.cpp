#include "element_bytes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <heddle/core/base/dtype.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/io/formats/float16.hpp>

namespace heddle {

namespace {

/// Rounds elements into `halves` up to the first that is then infinite or not a number. Returns their number.
template <class Half>
std::size_t narrow_to(std::span<float const> elements, std::vector<std::uint16_t>& halves) {
  halves.clear();
  for (float const element : elements) {
    Half const half(element);
    if (!std::isfinite(static_cast<float>(half))) {
      break;
    }
    halves.push_back(half.bits);
  }
  return halves.size();
}

}  // namespace

std::span<std::uint8_t const> element_bytes(std::string_view dtype, std::span<float const> elements,
                                            std::vector<std::uint16_t>& halves, std::string const& where,
                                            std::int64_t first) {
  std::span<std::uint8_t const> bytes{reinterpret_cast<std::uint8_t const*>(elements.data()), elements.size_bytes()};
  std::size_t good = 0;
  if (dtype == "float32") {
    auto const bad =
        std::find_if_not(elements.begin(), elements.end(), [](float value) { return std::isfinite(value); });
    good = static_cast<std::size_t>(bad - elements.begin());
  } else {
    good = (dtype == "bfloat16" ? narrow_to<BFloat16> : narrow_to<Float16>)(elements, halves);
    bytes = {reinterpret_cast<std::uint8_t const*>(halves.data()), halves.size() * sizeof halves[0]};
  }
  if (good < elements.size()) {
    throw DataError("{} has {} at element {}, which {} cannot hold", where, elements[good],
                    first + static_cast<std::int64_t>(good), dtype);
  }
  return bytes;
}

}  // namespace heddle
