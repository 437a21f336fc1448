#pragma once

namespace heddle {

/// A lower bound of the work of one or more calls. The planner, the pipeline cut and the observer use it.
struct Cost {
  double operations = 0;  ///< floating-point operations of matrix products; no others are counted
  double bytes = 0;       ///< minimum memory traffic: every operand once, operands that are added to twice

  Cost& operator+=(Cost const& other) {
    operations += other.operations;
    bytes += other.bytes;
    return *this;
  }
  friend Cost operator+(Cost a, Cost const& b) { return a += b; }
  friend Cost operator*(double times, Cost const& cost) { return {times * cost.operations, times * cost.bytes}; }
  bool operator==(Cost const&) const = default;
};

}  // namespace heddle
