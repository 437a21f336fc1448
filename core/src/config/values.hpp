#pragma once

#include <heddle/core/config/config.hpp>
#include <string>

#include "keys.hpp"

/// The TOML text of a value and its type in words, for printing, documentation and error messages.
namespace heddle::config_values {

/// A TOML basic string.
std::string toml_string(std::string_view text);

template <class Member>
inline constexpr bool is_count =
    std::is_same_v<Member, int> || std::is_same_v<Member, std::int64_t> || std::is_same_v<Member, std::uint64_t>;

template <class Check>
std::string text_of(bool value, Check const&) {
  return value ? "true" : "false";
}

template <class Count>
requires is_count<Count> std::string text_of(Count value, config_keys::Range const& range) {
  return range.or_auto && value == 0 ? toml_string("auto") : fmt::format("{}", value);
}

/// The shortest text that reads back as the same number and never looks like an integer.
std::string text_of(double value, config_keys::Range const& range);
template <class Check>
std::string text_of(std::string const& value, Check const&) {
  return toml_string(value);
}

template <class Check>
std::string text_of(std::vector<std::string> const& value, Check const&) {
  std::string items;
  for (std::string const& item : value) {
    items += fmt::format("{}{}", items.empty() ? "" : ", ", toml_string(item));
  }
  return fmt::format("[{}]", items);
}

inline std::string text_of(std::vector<std::string> const& value, config_keys::OneOrMore const&) {
  return value.size() > 1 ? text_of(value, config_keys::NotEmpty{}) : toml_string(value.empty() ? "" : value.front());
}

std::string text_of(std::vector<std::int64_t> const& value, config_keys::Range const& range);

template <class Enum, class Check>
requires std::is_enum_v<Enum> std::string text_of(Enum value, Check const&) {
  return toml_string(name_of(value));
}

/// The value in TOML syntax.
template <class Member>
OptionValue value_of(Member const& member, bool or_auto) {
  if constexpr (std::is_enum_v<Member>) {
    return std::string(name_of(member));
  } else if constexpr (is_count<Member>) {
    return or_auto && member == 0 ? OptionValue("auto") : OptionValue(static_cast<std::int64_t>(member));
  } else {
    return member;
  }
}

/// A short description of a value for a message: its type and, if short, its text in the file.
std::string describe(OptionValue const& value);

/// The accepted values of a member of type Member, in words.
template <class Member, class Check>
std::string words_of(Check const& check) {
  if constexpr (std::is_same_v<Member, bool>) {
    return "true or false";
  } else if constexpr (std::is_enum_v<Member>) {
    std::string names;
    for (std::string_view const name : config_keys::names_of<Member>) {
      names += fmt::format("{}{}", names.empty() ? "" : " or ", toml_string(name));
    }
    return names;
  } else if constexpr (is_count<Member>) {
    return fmt::format("an integer, {}{}", check.describe(), check.or_auto ? ", or \"auto\"" : "");
  } else if constexpr (std::is_same_v<Member, double>) {
    return fmt::format("a number, {}", check.describe());
  } else if constexpr (std::is_same_v<Member, std::string>) {
    return std::is_same_v<Check, config_keys::NotEmpty> ? "a text that is not empty" : "a text";
  } else if constexpr (std::is_same_v<Member, std::vector<std::int64_t>>) {
    return fmt::format("a list of integers, each {}", check.describe());
  } else if constexpr (std::is_same_v<Check, config_keys::OneOrMore>) {
    return "a text, or a list of texts, none empty";
  } else {
    return std::is_same_v<Check, config_keys::NotEmpty> ? "a list of texts, at least one and none empty"
                                                        : "a list of texts";
  }
}

}  // namespace heddle::config_values
