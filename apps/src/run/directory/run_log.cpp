#include "run_log.hpp"

#include <fmt/format.h>

#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <iostream>
#include <sstream>
#include <utility>

namespace heddle {

namespace {

/// Date and time, in UTC as in all of log.txt.
std::string time_stamp() {
  return utc_now() + "  ";
}

}  // namespace

void RunLog::open(RunDirectory const& directory) {
  file_.reset();
  try {
    file_ = open_output(directory.path() / "log.txt", OutputMode::append);
    *file_ << std::exchange(kept_, "") << std::flush;
  } catch (Error const& problem) {
    warn(fmt::format("nothing is written into the log: {}", problem.what()));
  }
}

void RunLog::print(std::string const& text) {
  std::cout << (std::exchange(line_open_, false) ? "\n" : "") << printable(text) << (text.ends_with('\n') ? "" : "\n")
            << std::flush;
}

void RunLog::keep(std::string const& text) {
  std::string lines;
  std::istringstream rest(printable(text));
  for (std::string line; std::getline(rest, line);) {
    lines += time_stamp() + line + "\n";
  }
  if (file_ != nullptr) {
    *file_ << lines << std::flush;
  } else {
    kept_ += lines;
  }
}

void RunLog::warn(std::string const& message) {
  if (!is_rank_zero_ || message.empty()) {
    return;
  }
  if (std::exchange(line_open_, false)) {
    std::cout << std::endl;
  }
  heddle::warn(message);
  keep("warning: " + message);
}

void RunLog::header_warning(std::string const& message) {
  if (continued_ && !message.empty()) {
    header("warning: " + message);
  } else {
    warn(message);
  }
}

void RunLog::write(std::string const& text, Verbosity min) {
  if (!is_rank_zero_ || text.empty()) {
    return;
  }
  if (verbosity_ >= min) {
    print(text);
  }
  keep(text);
}

void RunLog::print_verbose(std::string const& text) {
  if (is_rank_zero_ && verbosity_ == Verbosity::verbose) {
    print(text);
  }
}

void RunLog::progress(std::string const& text, bool due) {
  if (verbosity_ == Verbosity::quiet) {
    // only in the file
  } else if (terminal_) {
    std::cout << "\r\x1b[K" << time_stamp().substr(11) << text << std::flush;
    line_open_ = true;
  } else if (due) {
    std::cout << time_stamp() << text << std::endl;
  }
  if (due) {
    keep(text);
  }
}

}  // namespace heddle
