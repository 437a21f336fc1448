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
  /// `total` in the unit of the later positions; 0 if it is not known.
  ProgressLine(std::ostream& out, std::string what, int64_t total);

  /// `count` lines are done, at `position` of the total.
  void update(int64_t count, int64_t position);

  /// Writes the last line of this pass.
  void finish(int64_t count, std::string const& result);

 private:
  using Clock = std::chrono::steady_clock;
  std::ostream& out_;
  std::string what_;
  int64_t total_;
  bool interactive_;
  Clock::time_point next_;
};

}  // namespace heddle
