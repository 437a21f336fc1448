#pragma once

#include <algorithm>
#include <cmath>
#include <heddle/core/base/spelling.hpp>
#include <heddle/core/config/options.hpp>
#include <optional>

#include "values.hpp"

/// Reads a member of a section's struct from a value: each function returns whether the value is of the member's type
/// and passes the key's check.
namespace heddle::config_values {

inline bool read(OptionValue const& value, bool& member, config_keys::Unchecked const&) {
  bool const* const flag = std::get_if<bool>(&value);
  member = flag != nullptr ? *flag : member;
  return flag != nullptr;
}

/// The integer that the value is; a number without a fraction is one, too: TOML reads 1e6 as a number.
inline std::optional<std::int64_t> integer_of(OptionValue const& value) {
  constexpr double exact = 9007199254740992.0;  // 2^53: below it a double tells each integer from the next
  if (std::int64_t const* const count = std::get_if<std::int64_t>(&value)) {
    return *count;
  }
  double const* const number = std::get_if<double>(&value);
  bool const whole = number != nullptr && std::abs(*number) < exact && std::trunc(*number) == *number;
  return whole ? std::optional(static_cast<std::int64_t>(*number)) : std::nullopt;
}

inline bool read(OptionValue const& value, std::int64_t& member, config_keys::Range const& range) {
  std::optional<std::int64_t> const count = integer_of(value);
  // Beyond 2^53 the range's double and the integer differ, but every upper bound lies below.
  if (!count || !range.holds(static_cast<double>(*count))) {
    return false;
  }
  member = *count;
  return true;
}

template <class Count>
requires is_count<Count>
bool read(OptionValue const& value, Count& member, config_keys::Range const& range) {
  std::string const* const text = std::get_if<std::string>(&value);
  if (range.or_auto && text != nullptr && *text == "auto") {
    member = 0;
    return true;
  }
  std::int64_t count = 0;
  bool const good = read(value, count, range);
  member = good ? static_cast<Count>(count) : member;
  return good;
}

inline bool read(OptionValue const& value, double& member, config_keys::Range const& range) {
  double const* const number = std::get_if<double>(&value);
  std::int64_t const* const count = std::get_if<std::int64_t>(&value);
  if (number == nullptr && count == nullptr) {
    return false;
  }
  double const read_value = number != nullptr ? *number : static_cast<double>(*count);
  member = range.holds(read_value) ? read_value : member;
  return range.holds(read_value);
}

template <class Check>
bool read(OptionValue const& value, std::string& member, Check const&) {
  std::string const* const text = std::get_if<std::string>(&value);
  member = text != nullptr ? *text : member;
  return text != nullptr && !(std::is_same_v<Check, config_keys::NotEmpty> && text->empty());
}

/// An empty list has no element type.
template <class Item>
std::vector<Item> const* list_of(OptionValue const& value) {
  static std::vector<Item> const empty;
  auto const is_empty = [](auto const& held) {
    if constexpr (requires { held.front(); } && !std::is_same_v<std::decay_t<decltype(held)>, std::string>) {
      return held.empty();
    }
    return false;
  };
  return std::visit(is_empty, value) ? &empty : std::get_if<std::vector<Item>>(&value);
}

inline bool read(OptionValue const& value, std::vector<std::int64_t>& member, config_keys::Range const& range) {
  std::vector<std::int64_t> const* const items = list_of<std::int64_t>(value);
  if (items == nullptr || !std::all_of(items->begin(), items->end(),
                                       [&](std::int64_t item) { return range.holds(static_cast<double>(item)); })) {
    return false;
  }
  member = *items;
  return true;
}

template <class Check>
bool read(OptionValue const& value, std::vector<std::string>& member, Check const&) {
  std::vector<std::string> const* const items = list_of<std::string>(value);
  bool const may_be_empty = !std::is_same_v<Check, config_keys::NotEmpty>;
  if (items == nullptr ||
      (!may_be_empty && (items->empty() || std::find(items->begin(), items->end(), "") != items->end()))) {
    return false;
  }
  member = *items;
  return true;
}

inline bool read(OptionValue const& value, std::vector<std::string>& member, config_keys::OneOrMore const&) {
  if (std::string const* const text = std::get_if<std::string>(&value)) {
    member = text->empty() ? std::vector<std::string>() : std::vector{*text};
    return true;
  }
  return read(value, member, config_keys::NotEmpty{});
}

template <class Enum>
requires std::is_enum_v<Enum>
bool read(OptionValue const& value, Enum& member, config_keys::Unchecked const&) {
  auto const& names = config_keys::names_of<Enum>;
  std::string const* const name = std::get_if<std::string>(&value);
  auto const found = name == nullptr ? names.end() : std::find(names.begin(), names.end(), *name);
  if (found == names.end()) {
    return false;
  }
  member = static_cast<Enum>(found - names.begin());
  return true;
}

/// `right`, the accepted values of a member of type Member in words, and which of them `value` probably means.
template <class Member>
std::string with_meant(std::string right, std::optional<OptionValue> const& value) {
  if constexpr (std::is_enum_v<Member>) {
    auto const& names = config_keys::names_of<Member>;
    std::string const* const text = value ? std::get_if<std::string>(&*value) : nullptr;
    std::string const meant =
        text == nullptr ? "" : nearest_spelling(*text, std::vector<std::string>(names.begin(), names.end()));
    right += meant.empty() ? "" : fmt::format("; did you mean {}?", toml_string(meant));
  }
  return right;
}

}  // namespace heddle::config_values
