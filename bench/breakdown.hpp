#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "peaks.hpp"

namespace heddle {

/// What a kernel call computes and, at the least, moves: every operand once.
struct Cost {
  double operations = 0;  ///< of its matrix products: others do not count
  double bytes = 0;
  DType dtype = DType::float32;  ///< whose matmul peak its operations are held against
};

/// What one part of a step took.
struct Work {
  double seconds = 0;
  double calls = 0;
  double operations = 0;
  double bytes = 0;
  /// Each call's operations at the matmul peak or its bytes at the bandwidth of the level that holds them, whichever is
  /// longer.
  double floor_seconds = 0;
  std::map<std::string, double> floors;  ///< the same by what it is of: "matmul", "L2", "L3", "memory"

  Work& operator+=(Work const& other);
};

/// A part's name and what it is made of, for example {"gemm, linear: forward", "384 x 128"}.
struct Part {
  std::string name;
  std::string detail;

  auto operator<=>(Part const&) const = default;
};

using Parts = std::map<Part, Work>;

/// Where kernels report to.
class Breakdown {
 public:
  explicit Breakdown(Peaks peaks) : peaks_(std::move(peaks)) {}

  /// Runs `call`, to its end on the device, and counts it as `part`.
  void run(Execution& execution, Part const& part, Cost const& cost, std::function<void()> const& call);
  /// What was counted since the last take.
  Parts take() { return std::exchange(parts_, {}); }
  Peaks const& peaks() const { return peaks_; }

 private:
  Peaks peaks_;
  Parts parts_;
};

/// Seconds spent in something.
class Stopwatch {
 public:
  template <class Work>
  auto time(Work const& work) {
    Lap const lap{*this};
    return work();
  }
  double take() { return std::exchange(seconds_, 0); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Lap {
    explicit Lap(Stopwatch& owner) : watch(owner) {}
    ~Lap() { watch.seconds_ += std::chrono::duration<double>(Clock::now() - began).count(); }
    Lap(Lap const&) = delete;
    Lap& operator=(Lap const&) = delete;

    Stopwatch& watch;
    Clock::time_point began = Clock::now();
  };

  double seconds_ = 0;
};

struct StepTimes {
  double seconds = 0;
  double communication = 0;  ///< and waiting for other ranks
  double data = 0;
  Parts parts;
};

/// A typical step: medians of seconds, means of all that is counted.
StepTimes typical(std::vector<StepTimes> const& steps);

/// Of all parts whose name begins so.
Work sum_of(Parts const& parts, std::string_view beginning);

/// The table; with `details` every part's details too.
void print(StepTimes const& step, bool details);

}  // namespace heddle
