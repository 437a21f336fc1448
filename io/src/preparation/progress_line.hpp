#pragma once

#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <string>

namespace heddle {

/// Reports the progress of a long pass over a text: on one line that is rewritten if `out` is the terminal's stderr,
/// else as a line every few seconds.
class ProgressLine {
 public:
  /// `bytes`: of the text; 0 where they are unknown.
  ProgressLine(std::ostream& out, std::string what, std::int64_t bytes);

  /// `position`: the bytes of the text that were read with these lines.
  void update(std::int64_t lines, std::int64_t position);
  /// Writes the last line of this pass.
  void finish(std::int64_t lines, std::string const& result);

 private:
  using Clock = std::chrono::steady_clock;

  std::chrono::milliseconds interval() const { return std::chrono::milliseconds(interactive_ ? 200 : 5000); }
  void write(std::int64_t lines, std::string const& rest);

  std::ostream& out_;
  std::string what_;
  std::int64_t bytes_;
  bool interactive_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point next_ = start_ + interval();
};

}  // namespace heddle
