#pragma once

#include <cstdint>
#include <string>

namespace heddle {

// Numbers in the form in which people read them: on the terminal, in log.txt and in tables, but not in files that
// programs read.

/// "1,104,764": in groups of three digits.
std::string readable_count(std::int64_t count);

/// "2h05m", "3m20s" or "4.2 s"; `seconds` is not negative.
std::string readable_duration(double seconds);

}  // namespace heddle
