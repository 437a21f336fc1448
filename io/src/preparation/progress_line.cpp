#include "progress_line.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <heddle/core/base/readable.hpp>
#include <iostream>

namespace heddle {

ProgressLine::ProgressLine(std::ostream& out, std::string what, std::int64_t bytes)
    : out_(out),
      what_(std::move(what)),
      bytes_(bytes),
      interactive_(&out == &std::cerr && ::isatty(STDERR_FILENO) == 1) {}

void ProgressLine::update(std::int64_t lines, std::int64_t position) {
  auto const now = Clock::now();
  if (now < next_) {
    return;
  }
  next_ = now + interval();
  std::string rest;
  if (bytes_ > 0 && position > 0) {
    double const share = std::min(1.0, static_cast<double>(position) / static_cast<double>(bytes_));
    double const seconds = std::chrono::duration<double>(now - start_).count();
    rest = fmt::format(", {:.0f} %, {} left", 100 * share, readable_duration(seconds * (1 - share) / share));
  }
  write(lines, rest);
  out_ << (interactive_ ? "" : "\n") << std::flush;
}

void ProgressLine::finish(std::int64_t lines, std::string const& result) {
  write(lines, result);
  out_ << '\n' << std::flush;
}

void ProgressLine::write(std::int64_t lines, std::string const& rest) {
  std::string const text = fmt::format("{}: {} lines{}", what_, readable_count(lines), rest);
  out_ << (interactive_ ? fmt::format("\r{:<76}", text) : text);
}

}  // namespace heddle
