#pragma once

#include <cstdint>
#include <heddle/core/measure/timed_calls.hpp>
#include <heddle/core/operations/observation.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace heddle {

/// Kernels' calls that differ only in the number of tokens: "gemm forward, float32, float32 by float32 to float32, 512
/// columns of 512".
std::string kind_of(KernelCall const& call);

/// The rates of kernels that were never measured: by default those of a slow core.
struct KernelRates {
  double operations_per_second = 5e10;
  double bytes_per_second = 1e10;

  double seconds(Cost const& cost) const {
    return cost.operations / operations_per_second + cost.bytes / bytes_per_second;
  }
};

/// The reason why a time should be measured again; "" where it can be trusted. A time is trusted for a month, and not
/// if it was taken on a busy machine.
std::string untrusted_reason(TimedWork const& work, double now);

/// Seconds of kernels' calls, measured on one machine. Between two measured sizes of a kind times are interpolated,
/// beyond them they are in proportion to the cost; a kind that was never measured takes the rate of its family.
class KernelTimes {
 public:
  /// Replaces a time of the same kind and cost. If both times were taken on a busy machine, the shorter one stays;
  /// one that was taken on a quiet machine is replaced by one of a busy machine only if it was forgotten.
  void add(std::string const& kind, TimedWork const& work);
  /// Makes times unknown for `knows` until they are added again: the times that `untrusted_reason` names, or all.
  void forget(double now, bool all);
  /// True if the kind has a time whose cost is within a tenth of this one or, unless `exactly`, times below and above.
  bool knows(std::string const& kind, Cost const& cost, bool exactly) const;
  /// The time of one call; nothing if not even the family is known.
  std::optional<TimedWork> time(std::string const& kind, Cost const& cost) const;

  TimedCalls const& all() const { return times_; }
  bool empty() const { return times_.empty(); }
  /// Changes whenever a time does.
  std::int64_t revision() const { return revision_; }

 private:
  std::int64_t revision_ = 0;
  TimedCalls times_;                                    ///< ascending by cost
  std::set<std::pair<std::string, double>> forgotten_;  ///< by kind and size; they are used where nothing is better
};

}  // namespace heddle
