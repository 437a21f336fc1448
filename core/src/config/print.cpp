#include <algorithm>

#include "keys.hpp"
#include "values.hpp"

namespace heddle {
namespace config_values {

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

std::string text_of(double value, config_keys::Range const& range) {
  static_cast<void>(range);
  std::string const text = fmt::format("{}", value);
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}

std::string text_of(std::vector<std::int64_t> const& value, config_keys::Range const& range) {
  static_cast<void>(range);
  return fmt::format("[{}]", fmt::join(value, ", "));
}

}  // namespace config_values

namespace {

/// Prints each key as a line of TOML.
class Printer {
 public:
  void section(char const* name, char const*) { text_ += fmt::format("{}[{}]\n", text_.empty() ? "" : "\n", name); }

  template <class Member, class Check>
  void key(char const* name, Member const& member, Check const& check, char const*) {
    text_ += fmt::format("{} = {}\n", name, config_values::text_of(member, check));
  }

  std::string const& text() const { return text_; }

 private:
  std::string text_;
};

/// As Printer, with what would be right and what it means in a comment beside each key.
class Describer {
 public:
  void section(char const* name, char const* meaning) {
    text_ += fmt::format("{}{:<{}}# {}\n", text_.empty() ? "" : "\n", fmt::format("[{}]", name), column, meaning);
  }

  template <class Member, class Check>
  void key(char const* name, Member const& member, Check const& check, char const* meaning) {
    std::string const assignment = fmt::format("{} = {}", name, config_values::text_of(member, check));
    std::string const words = config_values::words_of<Member>(check);
    if (assignment.size() < column) {
      text_ += fmt::format("{:<{}}# {}: {}\n", assignment, column, words, meaning);
    } else {
      text_ += fmt::format("# {}: {}\n{}\n", words, meaning, assignment);
    }
  }

  std::string const& text() const { return text_; }

 private:
  static constexpr std::size_t column = 34;
  std::string text_;
};

template <class Visitor>
std::string visited(Config const& config) {
  Visitor visitor;
  config_keys::visit_config(visitor, config);
  return visitor.text();
}

/// The name that `names_of` has for a value.
template <class Enum>
std::string_view listed_name(Enum value) {
  return config_keys::names_of<Enum>.at(static_cast<std::size_t>(value));
}

}  // namespace

std::string_view name_of(NormPlacement value) {
  return listed_name(value);
}
std::string_view name_of(Positions value) {
  return listed_name(value);
}
std::string_view name_of(Precision value) {
  return listed_name(value);
}
std::string_view name_of(OptimizerName value) {
  return listed_name(value);
}
std::string_view name_of(Schedule value) {
  return listed_name(value);
}
std::string_view name_of(ContextMode value) {
  return listed_name(value);
}
std::string_view name_of(PipelineSchedule value) {
  return listed_name(value);
}

std::string to_toml(Config const& config) {
  return visited<Printer>(config);
}

std::string describe_config() {
  return visited<Describer>(Config{});
}

bool operator==(Config const& a, Config const& b) {
  return to_toml(a) == to_toml(b);
}

}  // namespace heddle
