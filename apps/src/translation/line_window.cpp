#include "line_window.hpp"

#include <fmt/format.h>

#include <heddle/core/base/error.hpp>

#include "command_line/invalid_utf8.hpp"

namespace heddle {

namespace po = boost::program_options;

void add_window(po::options_description& description, std::optional<std::int64_t>& window, std::string const& help) {
  auto const choose = [&window](std::int64_t lines) {
    if (lines < 1) {
      throw UsageError(fmt::format("--window is {}; expected at least 1", lines));
    }
    window = lines;
  };
  description.add_options()("window", po::value<std::int64_t>()->value_name("LINES")->notifier(choose), help.c_str());
}

void add_window_options(po::options_description& description, WindowOptions& options, std::string const& done) {
  description.add_options()("input", po::value(&options.input)->value_name("TEXT"),
                            "read this text, plain or gzip, instead of the standard input");
  add_window(description, options.window,
             fmt::format("lines read before they are {}, those of similar length together; not given: {}, or 1 where "
                         "they are typed",
                         done, default_window));
  add_invalid_utf8(description, options.invalid_utf8);
}

LineWindows::LineWindows(WindowOptions const& options)
    : path_(options.input.empty() ? "/dev/stdin" : options.input),
      reader_(path_, options.invalid_utf8),
      window_(options.window.value_or(reader_.is_terminal() ? 1 : default_window)) {}

std::vector<SourceLine> LineWindows::next() {
  std::vector<SourceLine> lines;
  std::size_t bytes = 0;
  std::string line;
  while (std::ssize(lines) < window_ && bytes < max_window_bytes && reader_.next(line)) {
    bytes += line.size();
    lines.push_back({line, reader_.line_number()});
  }
  return lines;
}

void LineWindows::warn_of_invalid() const {
  warn_of_invalid_lines(path_, reader_);
}

}  // namespace heddle
