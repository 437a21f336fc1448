#include "peaks.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <heddle/core/execution.hpp>
#include <limits>

namespace heddle {

namespace {

using Clock = std::chrono::steady_clock;

/// The least seconds that `work` took, in as many repetitions as fit in about `budget` seconds, at least two.
template <class Work>
double least_seconds(double budget, Work const& work) {
  work();
  double least = std::numeric_limits<double>::infinity();
  double total = 0;
  do {
    auto const begin = Clock::now();
    work();
    double const seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    least = std::min(least, seconds);
    total += seconds;
  } while (total < budget);
  return least;
}

/// A linear layer's forward pass, [size, size] each, in the types of training: a parameter stays float32.
GemmCall square(DType dtype, std::int64_t size) {
  Tensor const activations = Tensor::allocate(dtype, {size, size});
  Tensor const weight = Tensor::allocate(DType::float32, {size, size});
  return {.a = activations,
          .b = weight,
          .c = Tensor::allocate(dtype, {size, size}),
          .bias = {},
          .transpose_b = true,
          // No parameter of a model has this identity, and the version never changes: packed once.
          .b_weight = {std::numeric_limits<std::uint64_t>::max() - static_cast<std::uint64_t>(size), 1}};
}

MatmulPeak measure_matmul(KernelRegistry<Gemm> const& registry, Execution& execution, DType dtype) {
  MatmulPeak peak;
  for (std::int64_t const size : {512, 1024}) {
    GemmCall const call = square(dtype, size);
    double const operations = 2.0 * static_cast<double>(size * size * size);
    for (auto const& entry : registry.entries()) {
      if (entry.name == "reference" || !entry.kernel->supports(call.problem())) {
        continue;
      }
      double const rate = operations / least_seconds(0.3, [&] {
                            entry.kernel->multiply(execution, call);
                            execution.space.fence();
                          });
      if (rate > peak.operations_per_second) {
        peak = {rate, entry.name};
      }
    }
  }
  return peak;
}

double measure_bandwidth(double bytes) {
  auto const count = static_cast<std::size_t>(bytes / (2 * sizeof(float)));
  std::vector<float> x(count, 1e-6F);
  std::vector<float> y(count, 1.0F);
  // Enough passes for the clock, and an `a` that no compiler can know.
  auto const passes = std::max<std::size_t>(1, (std::size_t{1} << 22) / count);
  float const volatile a = 0.5F;
  double const seconds = least_seconds(0.2, [&] {
    for (std::size_t pass = 0; pass < passes; ++pass) {
      float const factor = a;
      float const* const from = x.data();
      float* const into = y.data();
      for (std::size_t index = 0; index < count; ++index) {
        into[index] += factor * from[index];
      }
    }
  });
  return 3.0 * static_cast<double>(sizeof(float) * count * passes) / seconds;
}

double cache_bytes(int name, double otherwise) {
  long const bytes = sysconf(name);
  return bytes > 0 ? static_cast<double>(bytes) : otherwise;
}

}  // namespace

Bandwidth const& Peaks::bandwidth(double bytes) const {
  auto const level = std::ranges::find_if(bandwidths, [&](Bandwidth const& each) { return bytes <= each.holds; });
  return level == bandwidths.end() ? bandwidths.back() : *level;
}

Peaks measure_peaks(KernelRegistries const& registries, Execution& execution, int ranks) {
  Peaks peaks;
  peaks.float32 = measure_matmul(registries.gemm, execution, DType::float32);
  peaks.bfloat16 = measure_matmul(registries.gemm, execution, DType::bfloat16);
  double const l2 = cache_bytes(_SC_LEVEL2_CACHE_SIZE, 1 << 20);
  double const l3 = cache_bytes(_SC_LEVEL3_CACHE_SIZE, 32 << 20) / ranks;
  // Half of a level is surely in it.
  peaks.bandwidths = {{"L2", l2, measure_bandwidth(l2 / 2)},
                      {"L3", l3, measure_bandwidth(std::max(l3 / 2, 2 * l2))},
                      {"memory", std::numeric_limits<double>::infinity(), measure_bandwidth(std::max(8 * l3, 256e6))}};
  return peaks;
}

}  // namespace heddle
