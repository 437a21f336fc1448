#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace heddle {

/// A 64-bit digest that finds damage, except with a probability near 2⁻⁶⁴. It does not protect against deliberate
/// changes.
std::uint64_t digest(std::span<std::byte const> bytes);

}  // namespace heddle
