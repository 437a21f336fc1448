#pragma once

#include <chrono>
#include <functional>
#include <heddle/core/measure/peaks.hpp>
#include <heddle/core/operations/observation.hpp>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle {

/// Time, operations and bytes of one part of a step.
struct PartCost {
  double seconds = 0;
  double calls = 0;
  double operations = 0;
  double bytes = 0;
  /// Each call's operations at the matmul peak or its bytes at the bandwidth of the level that holds them, whichever
  /// takes longer.
  double floor_seconds = 0;
  std::map<std::string, double> floors;  ///< the same by bound: "matmul", "L2", "L3", "memory"

  PartCost& operator+=(PartCost const& other);
};

/// A part's name and its details, for example {"gemm, linear: forward", "384 x 128"}.
struct Part {
  std::string name;
  std::string detail;

  auto operator<=>(Part const&) const = default;
};

using Parts = std::map<Part, PartCost>;

/// Times and counts every kernel call. A matrix product with `vocabulary` as an extent counts as one of the logits.
class Breakdown final : public KernelObserver {
 public:
  Breakdown(Peaks peaks, std::int64_t vocabulary) : peaks_(std::move(peaks)), vocabulary_(vocabulary) {}

  void observe(Execution& execution, KernelCall const& call) override;
  /// The counts since the last take.
  Parts take() { return std::exchange(parts_, {}); }
  Peaks const& peaks() const { return peaks_; }

  /// Keeps matrix products from now on, to be repeated without the rest of the step.
  void record_products() { recording_ = true; }
  std::vector<std::function<void()>> const& products() const { return products_; }

 private:
  Part part_of(KernelCall const& call) const;

  Peaks peaks_;
  std::int64_t vocabulary_;
  Parts parts_;
  bool recording_ = false;
  std::vector<std::function<void()>> products_;
};

/// The seconds spent in one kind of work.
class Stopwatch {
 public:
  template <class Call>
  auto time(Call const& call) {
    Lap const lap{*this};
    return call();
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

/// A typical step: medians of seconds, means of counts.
StepTimes typical(std::vector<StepTimes> const& steps);

/// The sum of all parts whose name begins with this.
PartCost sum_of(Parts const& parts, std::string_view beginning);

/// The table; with `details` every part's details too.
void print(StepTimes const& step, bool details);

}  // namespace heddle
