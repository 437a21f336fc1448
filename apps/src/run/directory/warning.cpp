#include "warning.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <heddle/core/config/config.hpp>
#include <heddle/io/files/pending_directory.hpp>
#include <iostream>

namespace heddle {

std::string printable(std::string_view message) {
  constexpr unsigned char delete_character = 0x7f;
  constexpr unsigned char c1_lead = 0xc2;  // in UTF-8 U+0080 to U+009F are this byte and one from 0x80 to 0x9f
  std::string text;
  for (std::size_t at = 0; at < message.size(); ++at) {
    auto const byte = static_cast<unsigned char>(message[at]);
    bool const c1 = byte == c1_lead && at + 1 < message.size() && static_cast<unsigned char>(message[at + 1]) < 0xa0;
    if (c1) {
      text += fmt::format("\\u{:04x}", static_cast<unsigned char>(message[++at]));
    } else if ((byte < ' ' && byte != '\n' && byte != '\t') || byte == delete_character) {
      text += fmt::format("\\x{:02x}", byte);
    } else {
      text += message[at];
    }
  }
  return text;
}

std::string describe(std::exception const& error) {
  auto const* const of_file = dynamic_cast<std::filesystem::filesystem_error const*>(&error);
  return of_file == nullptr ? error.what()
                            : fmt::format("{}: {}", of_file->path1().string(), of_file->code().message());
}

void warn(std::string const& message) {
  if (message.empty()) {
    return;
  }
  char const* const no_color = std::getenv("NO_COLOR");
  bool const colored = ::isatty(STDERR_FILENO) == 1 && (no_color == nullptr || *no_color == '\0');
  std::cerr << fmt::format("heddle: {}warning:{} {}\n", colored ? "\033[33m" : "", colored ? "\033[0m" : "",
                           printable(message))
            << std::flush;
}

void print_warnings(Config const& config) {
  for (std::string const& warning : warnings_about(config)) {
    warn(warning);
  }
}

void print_notes(std::vector<std::string> const& notes) {
  for (std::string const& note : notes) {
    fmt::print("note: {}\n", printable(note));
  }
}

void report_on_stderr(std::string const& message) {
  std::cerr << fmt::format("heddle: {}\n", printable(with_targets(message))) << std::flush;
}

}  // namespace heddle
