#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// The bytes of elements in a dtype, "float32", "bfloat16" or "float16", each rounded to nearest even. They are in
/// `elements` or in `halves` and remain valid as long as both. Throws DataError, which begins with `where`, for one
/// that is then infinite or not a number; `first` is the number of the first in its tensor.
std::span<std::uint8_t const> element_bytes(std::string_view dtype, std::span<float const> elements,
                                            std::vector<std::uint16_t>& halves, std::string const& where,
                                            std::int64_t first);

}  // namespace heddle
