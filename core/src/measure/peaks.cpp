#include <algorithm>
#include <fstream>
#include <functional>
#include <heddle/core/base/seconds.hpp>
#include <heddle/core/measure/peaks.hpp>
#include <heddle/core/operations/gemm.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/core/tensor/execution.hpp>
#include <limits>
#include <span>

namespace heddle {

namespace {

/// The shortest time of `work`, in seconds, over the repetitions that fit in about `budget` seconds, after one that
/// does not count.
template <class Work>
double min_seconds(Execution& execution, double budget, Work const& work) {
  work();
  execution.space.fence();
  double min = std::numeric_limits<double>::infinity();
  double total = 0;
  do {
    auto const begin = SteadyClock::now();
    work();
    execution.space.fence();
    double const seconds = seconds_since(begin);
    min = std::min(min, seconds);
    total += seconds;
  } while (total < budget);
  return min;
}

/// A linear layer's forward pass, [size, size] each.
GemmCall square(DType dtype, std::int64_t size) {
  Tensor const activations = Tensor::allocate(dtype, {size, size});
  Tensor const weight = Tensor::allocate(DType::float32, {size, size});
  return {.a = activations,
          .b = weight,
          .c = Tensor::allocate(dtype, {size, size}),
          .bias = {},
          .transpose_b = true,
          // No parameter of a model has this identity, and the version never changes: the weight is packed once.
          .b_weight = {std::numeric_limits<std::uint64_t>::max() - static_cast<std::uint64_t>(size), 1}};
}

double measure_bandwidth(TensorOps& tensor_ops, Execution& execution, double bytes) {
  auto const count = static_cast<std::int64_t>(bytes / (2 * sizeof(float)));
  Tensor const x = Tensor::allocate(DType::float32, {count});
  Tensor const y = Tensor::allocate(DType::float32, {count});
  // Enough passes for the resolution of the clock.
  auto const passes = std::max<std::int64_t>(1, (std::int64_t{1} << 22) / count);
  double const seconds = min_seconds(execution, 0.2, [&] {
    for (std::int64_t pass = 0; pass < passes; ++pass) {
      tensor_ops.add(execution, y, x);
    }
  });
  return 3.0 * static_cast<double>(x.bytes() * passes) / seconds;
}

/// The size of the first CPU's cache of that level, as Linux reports it, or `otherwise`. (On a virtual machine sysconf
/// may report all the caches of the host.)
double cache_bytes(int level, double otherwise) {
  for (int index = 0;; ++index) {
    std::string const directory = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index);
    int found = 0;
    if (!(std::ifstream(directory + "/level") >> found)) {
      return otherwise;
    }
    double kibibytes = 0;  // "32768K"
    if (found == level && std::ifstream(directory + "/size") >> kibibytes && kibibytes > 0) {
      return 1024 * kibibytes;
    }
  }
}

/// Measures up to `max` implementations, those of the highest speed.
MatmulPeak measure_matmul(KernelRegistry<Gemm> const& registry, Execution& execution, DType dtype, std::size_t max) {
  MatmulPeak peak;
  for (std::int64_t const size : {512, 1024}) {
    GemmCall const call = square(dtype, size);
    double const operations = 2.0 * static_cast<double>(size * size * size);
    auto entries = registry.entries();
    std::erase_if(entries, [&](auto const& entry) {
      return entry.speed <= 0 || entry.kernel->only_by_name() || !entry.kernel->supports(call.problem());
    });
    std::ranges::stable_sort(entries, std::greater(), [](auto const& entry) { return entry.speed; });
    for (auto const& entry : std::span(entries).first(std::min(entries.size(), max))) {
      double const seconds = min_seconds(execution, 0.3, [&] { entry.kernel->multiply(execution, call); });
      if (operations / seconds > peak.operations_per_second) {
        peak = {operations / seconds, entry.name};
      }
    }
  }
  return peak;
}

std::vector<Bandwidth> measure_bandwidths(KernelRegistry<TensorOps> const& registry, Execution& execution, int ranks) {
  auto const tensor_ops = registry.select("auto", {DType::float32});
  double const l2 = cache_bytes(2, 1 << 20);
  double const l3 = cache_bytes(3, 32 << 20) / ranks;
  auto const rate = [&](double bytes) { return measure_bandwidth(*tensor_ops, execution, bytes); };
  // A buffer of half the level's size certainly fits in it.
  return {{"L2", l2, rate(l2 / 2)},
          {"L3", l3, rate(std::max(l3 / 2, 2 * l2))},
          {"memory", std::numeric_limits<double>::infinity(), rate(std::max(8 * l3, 256e6))}};
}

}  // namespace

Bandwidth const& Peaks::bandwidth(double bytes) const {
  auto const level = std::ranges::find_if(bandwidths, [&](Bandwidth const& each) { return bytes <= each.holds; });
  return level == bandwidths.end() ? bandwidths.back() : *level;
}

MatmulPeak measure_matmul_peak(KernelRegistries const& registries, Execution& execution, DType dtype) {
  return measure_matmul(registries.of<Gemm>(), execution, dtype, 2);
}

Peaks measure_peaks(KernelRegistries const& registries, Execution& execution, std::vector<DType> const& dtypes,
                    int ranks) {
  Peaks peaks;
  for (DType const dtype : dtypes) {
    peaks.matmuls[dtype] =
        measure_matmul(registries.of<Gemm>(), execution, dtype, std::numeric_limits<std::size_t>::max());
  }
  peaks.bandwidths = measure_bandwidths(registries.of<TensorOps>(), execution, ranks);
  return peaks;
}

}  // namespace heddle
