#pragma once

#include <cstdint>
#include <string>

namespace heddle {

/// The bytes with one to four random changes: bits, bytes and numbers at their limits, parts that are removed, doubled,
/// moved or cut off. The same for the same seed.
std::string mutated(std::string bytes, std::uint64_t seed);

}  // namespace heddle
