#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace heddle {

/// A 64-bit digest that finds damage, except with a probability near 2⁻⁶⁴. It is no protection against deliberate
/// change.
std::uint64_t digest(std::span<std::byte const> bytes);

}  // namespace heddle
