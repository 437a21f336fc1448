#include "clock.hpp"

#include <simgrid/actor.h>

#include <unordered_map>

namespace heddle::clock {

namespace {

/// Each call of the simulator costs real time, so that shorter computations wait for the next ones.
constexpr double shortest_computation = 1e-3;

struct Rates {
  KernelRates kernels;
  double seconds_between_looks = 1e-4;
};

Rates& rates() {
  static Rates of_all_ranks;
  return of_all_ranks;
}

}  // namespace

void set_rates(KernelRates const& of_kernels, double seconds_between_looks) {
  rates() = {of_kernels, seconds_between_looks};
}

void charge(Cost const& work) {
  static std::unordered_map<aid_t, double> owed;
  double& seconds = owed[sg_actor_self_get_pid()];
  seconds += rates().kernels.seconds(work);
  if (seconds >= shortest_computation) {
    double const now = seconds;
    seconds = 0;
    sg_actor_sleep_for(now);
  }
}

void pass() {
  sg_actor_sleep_for(rates().seconds_between_looks);
}

}  // namespace heddle::clock
