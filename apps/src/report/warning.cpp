#include "warning.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <heddle/core/config/config.hpp>
#include <iostream>

namespace heddle {

void warn(std::string const& message) {
  if (message.empty()) {
    return;
  }
  char const* const no_color = std::getenv("NO_COLOR");
  bool const colored = ::isatty(STDERR_FILENO) == 1 && (no_color == nullptr || *no_color == '\0');
  std::cerr << fmt::format("heddle: {}warning:{} {}\n", colored ? "\033[33m" : "", colored ? "\033[0m" : "", message)
            << std::flush;
}

void print_warnings(Config const& config) {
  for (std::string const& warning : warnings_about(config)) {
    warn(warning);
  }
}

void print_notes(std::vector<std::string> const& notes) {
  for (std::string const& note : notes) {
    fmt::print("note: {}\n", note);
  }
}

void report_on_stderr(std::string const& message) {
  std::cerr << fmt::format("heddle: {}\n", message);
}

}  // namespace heddle
