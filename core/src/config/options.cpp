#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/spelling.hpp>
#include <heddle/core/config/options.hpp>

#include "schema.hpp"

namespace heddle {
namespace {

std::string toml_string(std::string_view text) {
  std::string result = "\"";
  for (char const letter : text) {
    auto const code = static_cast<unsigned char>(letter);
    if (letter == '"' || letter == '\\') {
      result += '\\';
      result += letter;
    } else if (code < 0x20 || code == 0x7f) {
      result += fmt::format("\\u{:04x}", code);
    } else {
      result += letter;
    }
  }
  return result + '"';
}

/// The integer that the value is; a number without a fraction is one, too: TOML reads 1e6 as a number.
std::optional<std::int64_t> integer_of(OptionValue const& value) {
  constexpr double exact = 9007199254740992.0;  // 2^53: below it a double tells each integer from the next
  if (auto const* const count = std::get_if<std::int64_t>(&value)) {
    return *count;
  }
  auto const* const number = std::get_if<double>(&value);
  bool const whole = number != nullptr && std::abs(*number) < exact && std::trunc(*number) == *number;
  return whole ? std::optional(static_cast<std::int64_t>(*number)) : std::nullopt;
}

std::optional<double> number_of(OptionValue const& value) {
  if (auto const* const count = std::get_if<std::int64_t>(&value)) {
    return static_cast<double>(*count);
  }
  auto const* const number = std::get_if<double>(&value);
  return number != nullptr ? std::optional(*number) : std::nullopt;
}

/// The list that the value is. An empty one has no element type.
template <class Item>
std::optional<std::vector<Item>> list_of(OptionValue const& value) {
  if (auto const* const items = std::get_if<std::vector<Item>>(&value)) {
    return *items;
  }
  bool const empty =
      value == OptionValue(std::vector<std::string>()) || value == OptionValue(std::vector<std::int64_t>());
  return empty ? std::optional(std::vector<Item>()) : std::nullopt;
}

bool in_range(OptionDescription const& option, double value) {
  return (option.above_min ? value > option.min : value >= option.min) &&
         (option.below_max ? value < option.max : value <= option.max) &&
         value < std::numeric_limits<double>::infinity();
}

std::string describe_range(OptionDescription const& option) {
  std::string const low = fmt::format("{} {}", option.above_min ? "above" : "at least", option.min);
  if (option.max == std::numeric_limits<double>::infinity()) {
    return low;
  }
  return option.above_min || option.below_max
             ? fmt::format("{} and {} {}", low, option.below_max ? "below" : "at most", option.max)
             : fmt::format("{} to {}", option.min, option.max);
}

std::optional<OptionValue> converted_strings(OptionDescription const& option, OptionValue const& value) {
  if (auto const* const text = std::get_if<std::string>(&value); option.one_or_several && text != nullptr) {
    return text->empty() ? std::vector<std::string>() : std::vector{*text};
  }
  auto const items = list_of<std::string>(value);
  bool const filled = items && !items->empty() && std::ranges::find(*items, "") == items->end();
  return items && (filled || option.may_be_empty) ? std::optional<OptionValue>(*items) : std::nullopt;
}

/// The key of the layer, given the key of its sublayer's option: "model.decoder.heads" of
/// "model.decoder.self_attention.heads".
std::string key_of_layer(std::string const& option, std::string const& name) {
  std::size_t const sublayer = option.rfind('.', option.size() - name.size() - 2);
  return option.substr(0, sublayer + 1) + name;
}

std::string right_name(std::string const& option, std::string const& name, std::vector<std::string> const& names) {
  ModelConfig model;
  std::vector<std::string> const of_layers = names_of_keys(layer_keys(model, model.decoder));
  if (option.starts_with("model.") && std::ranges::find(of_layers, name) != of_layers.end()) {
    return fmt::format("{} is a key of the whole layer: {}", name, key_of_layer(option, name));
  }
  return names.empty() ? "this layer takes none" : nearest_or_all(name, names);
}

}  // namespace

std::string to_toml(OptionValue const& value) {
  struct Printer {
    std::string operator()(bool held) const { return held ? "true" : "false"; }
    std::string operator()(std::int64_t held) const { return fmt::format("{}", held); }
    /// The shortest text that reads back as the same number and never looks like an integer.
    std::string operator()(double held) const {
      std::string const text = fmt::format("{}", held);
      return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
    }
    std::string operator()(std::string const& held) const { return toml_string(held); }
    std::string operator()(std::vector<std::int64_t> const& held) const {
      return fmt::format("[{}]", fmt::join(held, ", "));
    }
    std::string operator()(std::vector<std::string> held) const {
      std::ranges::transform(held, held.begin(), toml_string);
      return fmt::format("[{}]", fmt::join(held, ", "));
    }
  };
  return std::visit(Printer{}, value);
}

std::string describe(OptionValue const& value) {
  constexpr std::array types{"boolean", "integer", "number", "string"};
  if (value.index() < types.size()) {
    return fmt::format("the {} {}", types[value.index()], to_toml(value));
  }
  return to_toml(value) == "[]" ? "an empty list" : "a list";
}

std::string OptionDescription::accepted() const {
  if (!choices.empty()) {
    std::vector<std::string> names = choices;
    std::ranges::transform(names, names.begin(), toml_string);
    return fmt::format("{}", fmt::join(names, " or "));
  }
  switch (type) {
    case Type::boolean:
      return "true or false";
    case Type::integer:
      return fmt::format("an integer, {}{}", describe_range(*this), or_auto ? ", or \"auto\"" : "");
    case Type::number:
      return fmt::format("a number, {}", describe_range(*this));
    case Type::string:
      return may_be_empty ? "a string" : "a non-empty string";
    case Type::integers:
      return fmt::format("a list of integers, each {}", describe_range(*this));
    case Type::any:
      return "a boolean, a number, a string or a list";
    case Type::strings:
      break;
  }
  if (one_or_several) {
    return "a string, or a list of non-empty strings";
  }
  return may_be_empty ? "a list of strings" : "a non-empty list of non-empty strings";
}

std::string OptionDescription::expected(std::optional<OptionValue> const& value) const {
  auto const* const text = value ? std::get_if<std::string>(&*value) : nullptr;
  std::string const meant = text == nullptr ? "" : nearest_spelling(*text, choices);
  return meant.empty() ? accepted() : fmt::format("{}; did you mean {}?", accepted(), toml_string(meant));
}

std::optional<OptionValue> OptionDescription::converted(OptionValue const& value) const {
  auto const* const text = std::get_if<std::string>(&value);
  switch (type) {
    case Type::boolean:
      return std::holds_alternative<bool>(value) ? std::optional(value) : std::nullopt;
    case Type::integer: {
      auto const count = integer_of(value);
      if (or_auto && text != nullptr && *text == "auto") {
        return value;
      }
      // Beyond 2^53 the range's double and the integer differ, but every upper bound lies below.
      return count && in_range(*this, static_cast<double>(*count)) ? std::optional<OptionValue>(*count) : std::nullopt;
    }
    case Type::number: {
      auto const number = number_of(value);
      return number && in_range(*this, *number) ? std::optional<OptionValue>(*number) : std::nullopt;
    }
    case Type::string: {
      bool const filled = text != nullptr && (may_be_empty || !text->empty());
      bool const chosen = choices.empty() || (filled && std::ranges::find(choices, *text) != choices.end());
      return filled && chosen ? std::optional(value) : std::nullopt;
    }
    case Type::integers: {
      auto const items = list_of<std::int64_t>(value);
      auto const good = [&](std::int64_t item) { return in_range(*this, static_cast<double>(item)); };
      return items && std::ranges::all_of(*items, good) ? std::optional<OptionValue>(*items) : std::nullopt;
    }
    case Type::any:
      return value;
    case Type::strings:
      break;
  }
  return converted_strings(*this, value);
}

std::string LayerOptions::key_of(std::string const& name) const {
  auto const found = given_.find(name);
  return found == given_.end() || found->second.key.empty() ? fmt::format("{}.{}", where_, name) : found->second.key;
}

std::string LayerOptions::place(std::string const& name) const {
  auto const found = given_.find(name);
  return fmt::format("{}{}", found == given_.end() ? "" : found->second.origin + ": ", key_of(name));
}

void LayerOptions::check(std::vector<OptionDescription> const& known) const {
  for (auto const& [name, setting] : given_) {
    auto const found = std::ranges::find(known, name, &OptionDescription::name);
    if (found == known.end()) {
      std::vector<std::string> names;
      std::ranges::transform(known, std::back_inserter(names), &OptionDescription::name);
      throw ConfigError("{}: there is no option {}; {}", setting.origin, key_of(name),
                        right_name(key_of(name), name, names));
    }
    if (!found->converted(setting.value)) {
      throw ConfigError("{} is {}; expected {}", place(name), describe(setting.value), found->expected(setting.value));
    }
  }
}

template <class Value>
Value LayerOptions::get(std::string const& name, OptionDescription::Type type, Value const& otherwise) const {
  auto const found = given_.find(name);
  if (found == given_.end()) {
    return otherwise;
  }
  OptionDescription const any{
      .name = name, .type = type, .meaning = "", .min = -std::numeric_limits<double>::infinity(), .may_be_empty = true};
  auto const value = any.converted(found->second.value);
  if (!value) {
    throw ConfigError("{} is {}, which is of another type", place(name), describe(found->second.value));
  }
  return std::get<Value>(*value);
}

bool LayerOptions::flag(std::string const& name, bool otherwise) const {
  return get(name, OptionDescription::Type::boolean, otherwise);
}
std::int64_t LayerOptions::integer(std::string const& name, std::int64_t otherwise) const {
  return get(name, OptionDescription::Type::integer, otherwise);
}
double LayerOptions::number(std::string const& name, double otherwise) const {
  return get(name, OptionDescription::Type::number, otherwise);
}
std::string LayerOptions::text(std::string const& name, std::string const& otherwise) const {
  return get(name, OptionDescription::Type::string, otherwise);
}

}  // namespace heddle
