#pragma once

#include <heddle/core/kernel_registry.hpp>
#include <string>
#include <vector>

namespace heddle {

/// The best rate of a large matrix multiplication and who reached it.
struct MatmulPeak {
  double operations_per_second = 0;  ///< 0: no implementation supports it
  std::string implementation;
};

/// How fast memory of a level can be read and written: y += a x, two reads and a write of each element.
struct Bandwidth {
  std::string level;  ///< "L2", "L3", "memory"
  double holds = 0;   ///< calls that touch at most so many bytes are counted at this level
  double bytes_per_second = 0;
};

/// What one rank's core can do, measured.
struct Peaks {
  MatmulPeak float32;
  MatmulPeak bfloat16;
  std::vector<Bandwidth> bandwidths;  ///< from the fastest level to memory

  MatmulPeak const& matmul(DType dtype) const { return dtype == DType::bfloat16 ? bfloat16 : float32; }
  Bandwidth const& bandwidth(double bytes) const;
};

/// Takes about two seconds. Every rank measures at the same time, as all cores are busy in training, too; `ranks` share
/// the L3.
Peaks measure_peaks(KernelRegistries const& registries, Execution& execution, int ranks);

}  // namespace heddle
