#pragma once

#include <algorithm>
#include <cstdint>

/// How work is divided among threads.
namespace heddle::kernels {

/// The number of shares of `work` units: one for each thread, but fewer if they had less than `min` units.
inline std::int64_t shares(std::int64_t work, std::int64_t min, std::int64_t threads) {
  return std::clamp<std::int64_t>(work / min, 1, threads);
}

}  // namespace heddle::kernels
