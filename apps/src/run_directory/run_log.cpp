#include "run_log.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <heddle/core/base/error.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <iostream>
#include <utility>

namespace heddle {

namespace {

std::string with_line_break(std::string const& text) {
  return text.empty() || text.ends_with('\n') ? text : text + "\n";
}

/// The text, each of its lines behind `stamp`.
std::string stamped(std::string const& stamp, std::string const& text) {
  std::string result;
  bool begins_line = true;
  for (char const letter : text) {
    result += begins_line ? stamp : "";
    result += letter;
    begins_line = letter == '\n';
  }
  return result;
}

/// Date and time, in UTC as in all of log.txt.
std::string time_stamp() {
  return fmt::format("{:%Y-%m-%d %H:%M:%S}  ", fmt::gmtime(std::time(nullptr)));
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
  std::cout << (line_open_ ? "\n" : "") << with_line_break(text) << std::flush;
  line_open_ = false;
}

void RunLog::keep(std::string const& text) {
  std::string const lines = stamped(time_stamp(), with_line_break(text));
  if (file_ != nullptr) {
    *file_ << lines << std::flush;
  } else {
    kept_ += lines;
  }
}

void RunLog::warn(std::string const& message) {
  if (!speaks_ || message.empty()) {
    return;
  }
  if (std::exchange(line_open_, false)) {
    std::cout << std::endl;
  }
  heddle::warn(message);
  keep("warning: " + message);
}

void RunLog::say_always(std::string const& text) {
  if (speaks_ && !text.empty()) {
    print(text);
    keep(text);
  }
}

void RunLog::say(std::string const& text) {
  if (verbosity_ != Verbosity::quiet) {
    say_always(text);
  } else if (speaks_) {
    keep(text);
  }
}

void RunLog::note(std::string const& text) {
  if (verbosity_ == Verbosity::verbose) {
    say_always(text);
  } else if (speaks_) {
    keep(text);
  }
}

void RunLog::show(std::string const& text) {
  if (speaks_ && verbosity_ == Verbosity::verbose && !text.empty()) {
    print(text);
  }
}

void RunLog::progress(std::string const& text, bool due) {
  if (verbosity_ == Verbosity::quiet) {
    // only in the file
  } else if (terminal_) {
    std::cout << "\r\x1b[K" << fmt::format("{:%H:%M:%S}  ", fmt::gmtime(std::time(nullptr))) << text << std::flush;
    line_open_ = true;
  } else if (due) {
    std::cout << time_stamp() << text << std::endl;
  }
  if (due) {
    keep(text);
  }
}

}  // namespace heddle
