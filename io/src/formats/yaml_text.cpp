#include "yaml_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/parse_number.hpp>
#include <heddle/io/text/bounded_json.hpp>
#include <heddle/io/text/text.hpp>

namespace heddle {

namespace {

namespace json = boost::json;

constexpr std::string_view blanks = " \t\r";

std::string_view trimmed(std::string_view text) {
  std::size_t const begin = text.find_first_not_of(blanks);
  return begin == text.npos ? std::string_view() : text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

/// Reads one line after the other.
class YamlReader {
 public:
  YamlReader(std::string_view text, std::string const& where) : text_(text), where_(where) {}

  json::object read() {
    while (next_line()) {
      read_line();
    }
    require(key_state_ != KeyState::long_key, "a key without a value");
    return std::move(map_);
  }

 private:
  /// Whether a list may continue, or a long key waits for its value.
  enum class KeyState : std::uint8_t { none, value_may_follow, long_key };

  void require(bool good, std::string_view what) const {
    if (!good) {
      throw DataError("{}: line {}: {}", where_, line_number_, what);
    }
  }

  /// Takes the next line that has content; false at the end.
  bool next_line() {
    while (!text_.empty()) {
      std::size_t const end = text_.find('\n');
      line_ = text_.substr(0, end);
      text_.remove_prefix(end == text_.npos ? text_.size() : end + 1);
      ++line_number_;
      std::string_view const content = trimmed(line_);
      if (!content.empty() && content.front() != '#' && content != "---" && content != "...") {
        return true;
      }
    }
    return false;
  }

  void read_line() {
    bool const indented = blanks.find(line_.front()) != blanks.npos;
    rest_ = trimmed(line_);
    bool const item = rest_ == "-" || rest_.starts_with("- ");
    if (item || indented) {
      require(key_state_ == KeyState::value_may_follow, "a value without a key");
      json::value& value = map_.at(key_);
      if (item) {
        require(value.is_null() || (value.is_array() && list_), "an item where there is a value already");
        if (value.is_null()) {
          value = json::array();
        }
        list_ = true;
        rest_ = trimmed(rest_.substr(1));
        value.get_array().push_back(scalar());
      } else {
        require(value.is_null(),
                "a value where there is one already: maps in maps and multi-line strings are not read");
        value = this->value();
        key_state_ = KeyState::none;
      }
      finish_line();
      return;
    }
    if (key_state_ == KeyState::long_key) {
      require(rest_.starts_with(':'), "expected the value of a long key");
    } else if (rest_.starts_with("? ")) {
      rest_ = trimmed(rest_.substr(1));
      begin_key(KeyState::long_key);
      finish_line();
      return;
    } else {
      begin_key(KeyState::none);
      require(rest_.starts_with(':'), "expected KEY: VALUE");
    }
    rest_ = trimmed(rest_.substr(1));
    json::value& value = map_[key_];
    value = rest_.empty() || rest_.front() == '#' ? json::value() : this->value();
    key_state_ = value.is_null() ? KeyState::value_may_follow : KeyState::none;
    finish_line();
  }

  void begin_key(KeyState state) {
    if (rest_.starts_with('"') || rest_.starts_with('\'')) {
      key_ = quoted();
      rest_ = trimmed(rest_);
    } else {
      // The last colon before a blank: plain keys may have colons inside, as special:model.yml does.
      std::size_t const colon = state == KeyState::long_key ? rest_.size() : last_colon();
      key_ = trimmed(rest_.substr(0, colon));
      rest_.remove_prefix(std::min(colon, rest_.size()));
    }
    require(map_.emplace(key_, nullptr).second, "duplicate key " + json_quoted(key_));
    key_state_ = state;
    list_ = false;
  }

  std::size_t last_colon() const {
    for (std::size_t at = 1; at < rest_.size(); ++at) {
      if (rest_[at] == ':' && (at + 1 == rest_.size() || blanks.find(rest_[at + 1]) != blanks.npos)) {
        return at;
      }
    }
    return rest_.size();
  }

  json::value value() {
    if (!rest_.starts_with('[')) {
      return scalar();
    }
    json::array list;
    rest_ = trimmed(rest_.substr(1));
    in_flow_ = true;
    while (!rest_.starts_with(']')) {
      list.push_back(scalar());
      rest_ = trimmed(rest_);
      require(rest_.starts_with(',') || rest_.starts_with(']'), "a list that does not end");
      if (rest_.starts_with(',')) {
        rest_ = trimmed(rest_.substr(1));
      }
    }
    in_flow_ = false;
    rest_.remove_prefix(1);
    return list;
  }

  /// A scalar at the beginning of what is left of the line.
  json::value scalar() {
    if (rest_.starts_with('"') || rest_.starts_with('\'')) {
      return json::string(quoted());
    }
    require(rest_.empty() || std::string_view("{&*!|>%@`").find(rest_.front()) == std::string_view::npos,
            "maps in maps, anchors, tags and blocks of text are not read");
    std::size_t end = rest_.find(" #");
    if (in_flow_) {
      end = std::min(end, rest_.find_first_of(",]"));
      require(end != 0, "a list with an item without text");
    }
    std::string_view const plain = trimmed(rest_.substr(0, end));
    rest_.remove_prefix(std::min(end, rest_.size()));
    return typed(plain);
  }

  static json::value typed(std::string_view plain) {
    if (plain.empty() || plain == "~" || plain == "null") {
      return nullptr;
    }
    if (plain == "true" || plain == "false") {
      return plain == "true";
    }
    if (auto const integer = parse_number<std::int64_t>(plain)) {
      return *integer;
    }
    if (auto const number = parse_number<double>(plain)) {
      return *number;
    }
    return json::string(plain);
  }

  std::string quoted() {
    char const quote = rest_.front();
    rest_.remove_prefix(1);
    std::string text;
    while (!rest_.empty() && (rest_.front() != quote || (quote == '\'' && rest_.starts_with("''")))) {
      if (quote == '"' && rest_.front() == '\\') {
        rest_.remove_prefix(1);
        escaped(text);
        continue;
      }
      text.push_back(rest_.front());
      rest_.remove_prefix(rest_.starts_with("''") && quote == '\'' ? 2 : 1);
    }
    require(!rest_.empty(), "a text without its closing quote");
    rest_.remove_prefix(1);
    return text;
  }

  void escaped(std::string& text) {
    require(!rest_.empty(), "a text that ends with a backslash");
    char const letter = rest_.front();
    rest_.remove_prefix(1);
    std::size_t const digits = letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
    constexpr std::string_view names = "0abtnvfre\"\\/ N_LP";
    constexpr std::array<std::uint32_t, 17> codes{0,   7,    8,   9,   10,   11,   12,     13,    27,
                                                  '"', '\\', '/', ' ', 0x85, 0xa0, 0x2028, 0x2029};
    std::uint32_t code = 0;
    if (digits > 0) {
      auto const number = parse_number<std::uint32_t>(rest_.substr(0, digits), 16);
      require(rest_.size() >= digits && number && *number <= 0x10ffff, "an escape that is not a code point");
      code = *number;
      rest_.remove_prefix(digits);
    } else {
      std::size_t const place = names.find(letter);
      require(place != names.npos, "an escape that YAML does not have");
      code = codes.at(place);
    }
    text += encode_utf8(std::u32string(1, code));
  }

  void finish_line() {
    rest_ = trimmed(rest_);
    require(rest_.empty() || rest_.front() == '#', "unexpected text after a value");
  }

  std::string_view text_;
  std::string where_;
  std::string_view line_, rest_;
  std::int64_t line_number_ = 0;
  std::string key_;
  KeyState key_state_ = KeyState::none;
  bool list_ = false;     ///< the key's value is a list in block style
  bool in_flow_ = false;  ///< within [ and ]
  json::object map_;
};

std::string scalar_text(json::value const& value) {
  return value.is_string()   ? yaml_quoted(value.get_string())
         : value.is_double() ? fmt::format("{}", value.get_double())
                             : json::serialize(value);
}

}  // namespace

json::object parse_yaml_map(std::string_view text, std::string const& where) {
  return YamlReader(text, where).read();
}

std::string yaml_quoted(std::string_view text) {
  std::string quoted = "\"";
  for (char const letter : text) {
    if (letter == '"' || letter == '\\') {
      quoted += '\\';
    }
    if (static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f) {
      quoted += fmt::format("\\x{:02X}", static_cast<unsigned char>(letter));
    } else {
      quoted += letter;
    }
  }
  return quoted + '"';
}

std::string yaml_text(json::object const& map) {
  std::string text;
  for (auto const& [key, value] : map) {
    if (!value.is_array()) {
      text += fmt::format("{}: {}\n", std::string_view(key), scalar_text(value));
      continue;
    }
    text += fmt::format("{}:{}\n", std::string_view(key), value.get_array().empty() ? " []" : "");
    for (json::value const& item : value.get_array()) {
      text += fmt::format("  - {}\n", scalar_text(item));
    }
  }
  return text;
}

}  // namespace heddle
