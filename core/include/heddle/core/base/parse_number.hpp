#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace heddle {

/// The number that the whole of `text` is, as std::from_chars reads it: "-3", "1e-5", in base 16 "ff" (integers); none
/// for anything else, such as blanks around it, and for a number that the type cannot hold.
template <class Number, class... Base>
std::optional<Number> parse_number(std::string_view text, Base... base) {
  Number number{};
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base...);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

}  // namespace heddle
