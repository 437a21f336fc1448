#include "text_output.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <heddle/core/base/error.hpp>
#include <iostream>
#include <system_error>

namespace heddle {

TextOutput::TextOutput(std::string const& path, std::vector<std::string> const& inputs)
    : path_(path.empty() ? "the standard output" : path) {
  if (path.empty()) {
    return;
  }
  for (std::string const& input : inputs) {
    std::error_code ignored;  // a file that does not exist is equivalent to nothing
    if (std::filesystem::is_regular_file(path, ignored) && std::filesystem::equivalent(path, input, ignored)) {
      throw UsageError(fmt::format("--output {} is the text that is read ({}); expected another file", path, input));
    }
  }
  file_.open(path, std::ios::binary | std::ios::trunc);
  check();
}

void TextOutput::write(std::string const& text) {
  std::ostream& stream = file_.is_open() ? file_ : std::cout;
  stream << text << std::flush;
  check();
}

void TextOutput::check() const {
  if (!file_ || !std::cout) {
    throw Error(fmt::format("{}: cannot write: {}", path_, std::strerror(errno)));
  }
}

}  // namespace heddle
