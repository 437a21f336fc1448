#pragma once

#include <chrono>

namespace heddle {

using SteadyClock = std::chrono::steady_clock;

inline double seconds_since(SteadyClock::time_point began) {
  return std::chrono::duration<double>(SteadyClock::now() - began).count();
}

}  // namespace heddle
