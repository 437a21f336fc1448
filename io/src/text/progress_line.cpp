#include "progress_line.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <heddle/core/base/readable.hpp>
#include <iostream>
#include <utility>

namespace heddle {
namespace {

using std::chrono::milliseconds;

}  // namespace

ProgressLine::ProgressLine(std::ostream& out, std::string what, int64_t total)
    : out_(out),
      what_(std::move(what)),
      total_(total),
      interactive_(&out == &std::cerr && isatty(STDERR_FILENO) == 1),
      next_(Clock::now() + milliseconds(interactive_ ? 200 : 5000)) {}

void ProgressLine::update(int64_t count, int64_t position) {
  constexpr int64_t lines_between_looks = 256;
  if (count % lines_between_looks != 0 || Clock::now() < next_) {
    return;
  }
  next_ = Clock::now() + milliseconds(interactive_ ? 200 : 5000);
  std::string text = fmt::format("{}: {} lines", what_, readable_count(count));
  if (total_ > 0) {
    text += fmt::format(", {} %", std::min<int64_t>(100, position * 100 / total_));
  }
  out_ << (interactive_ ? fmt::format("\r{:<76}", text) : text + "\n") << std::flush;
}

void ProgressLine::finish(int64_t count, std::string const& result) {
  std::string const text = fmt::format("{}: {} lines{}", what_, readable_count(count), result);
  out_ << (interactive_ ? fmt::format("\r{:<76}\n", text) : text + "\n") << std::flush;
}

}  // namespace heddle
