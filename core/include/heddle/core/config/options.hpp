#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace heddle {

using OptionValue =
    std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>, std::vector<std::string>>;

/// The TOML text of a value.
std::string to_toml(OptionValue const& value);

/// A short description of a value for messages: its type and, unless it is a list, its text in the file.
std::string describe(OptionValue const& value);

/// A key's value and its origin: "run.toml:3:1", or "--set …". Two are equal if their values are.
struct Setting {
  OptionValue value;
  std::string origin;
  std::string key = {};  ///< its full name as given: "model.decoder.layer.4-6.self_attention.window"

  bool operator==(Setting const& other) const { return value == other.value; }
};

using Settings = std::map<std::string, Setting>;

/// An option that a layer takes, or a key of the configuration: its type, the values it may have and its meaning.
/// Strings and lists are not empty unless `may_be_empty`; a string without choices may be any.
struct OptionDescription {
  enum class Type : std::uint8_t { boolean, integer, number, string, integers, strings, any };

  std::string name = {};
  Type type = Type::integer;
  std::string meaning = {};
  double min = 0;  ///< lower bound of numbers and of each integer in a list
  double max = std::numeric_limits<double>::infinity();
  std::vector<std::string> choices = {};
  bool above_min = false;       ///< min itself is not accepted
  bool below_max = false;       ///< max itself is not accepted
  bool may_be_empty = false;    ///< the string, or the list and the strings in it
  bool or_auto = false;         ///< the string "auto" is accepted in place of an integer
  bool one_or_several = false;  ///< one string stands for a list of it, an empty one for an empty list

  static OptionDescription boolean(std::string name, std::string meaning) {
    return {.name = std::move(name), .type = Type::boolean, .meaning = std::move(meaning)};
  }
  static OptionDescription number(std::string name, std::string meaning) {
    return {.name = std::move(name), .type = Type::number, .meaning = std::move(meaning)};
  }

  /// The accepted values: "an integer, 1 to 4096".
  std::string accepted() const;
  /// accepted(), followed by the choice that `value` probably means.
  std::string expected(std::optional<OptionValue> const& value) const;
  /// The value in the option's type (1e6 and 2.0 are integers, too, and 3 is a number); none if it is not accepted.
  std::optional<OptionValue> converted(OptionValue const& value) const;
};

/// The options that the configuration gives one sublayer.
class LayerOptions {
 public:
  LayerOptions() = default;
  /// `where` is the key of the sublayer's options for the whole stack, "model.decoder.self_attention".
  LayerOptions(Settings given, std::string where) : given_(std::move(given)), where_(std::move(where)) {}

  /// Returns the option's value, or `otherwise` if it is not set. Throws ConfigError, as `check` does, for another
  /// type.
  bool flag(std::string const& name, bool otherwise) const;
  std::int64_t integer(std::string const& name, std::int64_t otherwise) const;
  double number(std::string const& name, double otherwise) const;
  std::string text(std::string const& name, std::string const& otherwise) const;

  bool has(std::string const& name) const { return given_.contains(name); }
  Settings const& given() const { return given_; }
  /// "run.toml:3:1: model.decoder.layer.4-6.self_attention.NAME" or, if the option is not set,
  /// "model.decoder.self_attention.NAME": the start of a message about an option.
  std::string place(std::string const& name) const;

  /// Throws ConfigError with file, line and key for an option that is not among `known` (with the nearest spelling),
  /// of a wrong type or out of its range (with what would be right).
  void check(std::vector<OptionDescription> const& known) const;

 private:
  std::string key_of(std::string const& name) const;
  template <class Value>
  Value get(std::string const& name, OptionDescription::Type type, Value const& otherwise) const;

  Settings given_;
  std::string where_;
};

}  // namespace heddle
