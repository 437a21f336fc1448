#include <fmt/format.h>

#include <heddle/core/base/readable.hpp>

namespace heddle {

std::string readable_count(std::int64_t count) {
  std::string text = fmt::format("{}", count);
  std::size_t const first_digit = count < 0 ? 1 : 0;
  for (std::size_t end = text.size(); end > first_digit + 3; end -= 3) {
    text.insert(end - 3, ",");
  }
  return text;
}

std::string readable_duration(double seconds) {
  auto const whole = static_cast<std::int64_t>(seconds);
  if (whole >= 3600) {
    return fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
  }
  return whole >= 60 ? fmt::format("{}m{:02}s", whole / 60, whole % 60) : fmt::format("{:.1f} s", seconds);
}

}  // namespace heddle
