#include "config_edit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/algorithm/string/trim.hpp>
#include <heddle/core/base/error.hpp>
#include <sstream>

namespace heddle {

namespace {

/// The name of the section that a line starts; "" for any other line.
std::string section_of(std::string const& line) {
  std::string const text = boost::trim_copy(line.substr(0, line.find('#')));
  bool const is_section = text.size() > 2 && text.front() == '[' && text[1] != '[' && text.back() == ']';
  return is_section ? boost::trim_copy(text.substr(1, text.size() - 2)) : "";
}

std::string key_of(std::string const& line) {
  return boost::trim_copy(line.substr(0, line.find_first_of("=#")));
}

/// The line with another value; what follows a # stays.
std::string with_value(std::string const& line, std::string const& value) {
  auto const equals = line.find('=');
  auto const comment = line.find('#', equals);
  std::string changed = line.substr(0, equals + 1) + " " + value;
  return comment == std::string::npos ? changed : changed + "  " + line.substr(comment);
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  std::istringstream stream{std::string(text)};
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

/// Sets a key, or adds it after the section's last line that is not blank.
void set(std::vector<std::string>& lines, std::string const& section, std::string const& key,
         std::string const& value) {
  auto const begin = std::ranges::find_if(lines, [&](std::string const& line) { return section_of(line) == section; });
  if (begin == lines.end()) {
    lines.insert(lines.end(), {"", fmt::format("[{}]", section), fmt::format("{} = {}", key, value)});
    return;
  }
  auto const end = std::find_if(begin + 1, lines.end(),
                                [](std::string const& line) { return boost::trim_copy(line).starts_with('['); });
  auto const found = std::find_if(begin + 1, end, [&](std::string const& line) { return key_of(line) == key; });
  if (found != end) {
    *found = with_value(*found, value);
    return;
  }
  auto last = end;
  while (boost::trim_copy(*(last - 1)).empty()) {
    --last;
  }
  lines.insert(last, fmt::format("{} = {}", key, value));
}

}  // namespace

std::string edited_config(std::string_view text, std::string const& source_name,
                          std::vector<ConfigDifference> const& edits, Config const& expected) {
  std::vector<std::string> lines = lines_of(text);
  std::vector<std::string> to_set;
  for (ConfigDifference const& edit : edits) {
    auto const dot = edit.key.find('.');
    set(lines, edit.key.substr(0, dot), edit.key.substr(dot + 1), edit.after);
    to_set.push_back(fmt::format("{} = {}", edit.key, edit.after));
  }
  std::string const result = fmt::format("{}\n", fmt::join(lines, "\n"));
  try {
    if (differences(parse_config(result, source_name), expected).empty()) {
      return result;
    }
  } catch (ConfigError const&) {
    // A key or section is there in another form, and now twice.
  }
  throw ConfigError(
      "{} was not changed because it does not have one key a line below [section]; set these keys yourself: {}",
      source_name, fmt::join(to_set, ", "));
}

}  // namespace heddle
