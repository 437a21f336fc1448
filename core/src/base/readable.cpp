#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <heddle/core/base/readable.hpp>

namespace heddle {

std::string in_groups(std::string number) {
  std::size_t const first_digit = number.starts_with('-') ? 1 : 0;
  for (std::size_t end = std::min(number.find('.'), number.size()); end > first_digit + 3; end -= 3) {
    number.insert(end - 3, ",");
  }
  return number;
}

std::string readable_decimal(double number, int decimals) {
  return std::isfinite(number) ? in_groups(fmt::format("{:.{}f}", number, decimals)) : fmt::format("{}", number);
}

std::string readable_size(std::int64_t bytes) {
  constexpr std::int64_t gibibyte = 1 << 30;
  constexpr std::int64_t mebibyte = 1 << 20;
  bool const large = bytes >= gibibyte;
  return fmt::format("{} {}",
                     readable_decimal(static_cast<double>(bytes) / static_cast<double>(large ? gibibyte : mebibyte), 1),
                     large ? "GiB" : "MiB");
}

std::string readable_duration(double seconds) {
  auto const whole = static_cast<std::int64_t>(seconds);
  if (whole >= 3600) {
    return fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
  }
  return whole >= 60 ? fmt::format("{}m{:02}s", whole / 60, whole % 60) : fmt::format("{:.1f} s", seconds);
}

std::string utc_now() {
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::gmtime(std::time(nullptr)));
}

}  // namespace heddle
