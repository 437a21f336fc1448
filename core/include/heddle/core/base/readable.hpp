#pragma once

#include <concepts>
#include <cstdint>
#include <string>

namespace heddle {

// Numbers in the form in which people read them: on the terminal, in log.txt and in tables, but not in files that
// programs read.

/// A number as text, with or without sign and decimals; the digits of its whole part in groups of three.
std::string in_groups(std::string number);

/// "1,104,764".
std::string readable_count(std::integral auto count) {
  return in_groups(std::to_string(count));
}
/// The nearest whole number as text, its digits in groups of three.
std::string readable_count(std::floating_point auto count) {
  return in_groups(std::to_string(static_cast<long long>(count + (count < 0 ? -0.5 : 0.5))));
}

/// "1 layout", "1,200 layouts".
std::string counted(std::integral auto count, char const* thing) {
  return readable_count(count) + ' ' + thing + (count == 1 ? "" : "s");
}

/// "12,345.6": with `decimals` decimals.
std::string readable_decimal(double number, int decimals);

/// A size as text: "1.5 GiB", or "2.3 MiB" for sizes below a GiB.
std::string readable_size(std::int64_t bytes);

/// "2h05m", "3m20s" or "4.2 s"; `seconds` is not negative.
std::string readable_duration(double seconds);

/// The time now, in UTC: "2026-11-25 17:04:06".
std::string utc_now();

}  // namespace heddle
