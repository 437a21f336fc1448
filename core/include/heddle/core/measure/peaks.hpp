#pragma once

#include <heddle/core/operations/registry.hpp>
#include <map>
#include <string>
#include <vector>

namespace heddle {

/// The best rate of a large matrix multiplication, and the implementation that reached it.
struct MatmulPeak {
  double operations_per_second = 0;  ///< 0: no implementation supports this type
  std::string implementation;
};

/// The speed at which memory of one level is read and written: y += x, two reads and one write of each element.
struct Bandwidth {
  std::string level;  ///< "L2", "L3", "memory"
  double holds = 0;   ///< bytes; calls that touch no more are counted at this level
  double bytes_per_second = 0;
};

/// The best rates that this process measured, with which kernels are compared.
struct Peaks {
  std::map<DType, MatmulPeak> matmuls;
  std::vector<Bandwidth> bandwidths;  ///< from the fastest level to memory

  /// Throws where that type was not measured.
  MatmulPeak const& matmul(DType dtype) const { return matmuls.at(dtype); }
  Bandwidth const& bandwidth(double bytes) const;
};

/// Measures matrix multiplications as measure_peaks does, of one type and by the two implementations of the highest
/// speed, in at most a second or two.
MatmulPeak measure_matmul_peak(KernelRegistries const& registries, Execution& execution, DType dtype);

/// Measures matrix multiplications with activations of these types and float32 weights, as in training, by
/// implementations of speed above 0, and bandwidths by `tensor_ops`. Takes a few seconds. `ranks` is the number of
/// processes that share the L3: all measure at the same time, because all cores are busy in training, too.
Peaks measure_peaks(KernelRegistries const& registries, Execution& execution, std::vector<DType> const& dtypes,
                    int ranks);

}  // namespace heddle
