#pragma once

#include <heddle/core/operations/observation.hpp>
#include <heddle/dist/planning/kernel_times.hpp>

namespace heddle {

/// Work that the simulated ranks do not do but pay for. All ranks are in one process and one thread.
namespace clock {

/// Sets the rates of all ranks, and the seconds between two looks of a rank that waits.
void set_rates(KernelRates const& rates, double seconds_between_looks);
/// The calling rank computes for the time of such work. Small times are collected first.
void charge(Cost const& work);
/// The calling rank lets time pass, between two looks at what it waits for.
void pass();

}  // namespace clock

/// Charges the time of every kernel's call; the kernels themselves are idle.
class ClockKernels final : public KernelObserver {
 public:
  void observe(Execution& execution, KernelCall const& call) override {
    static_cast<void>(execution);
    clock::charge(call.cost);
  }
};

}  // namespace heddle
