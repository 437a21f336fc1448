#pragma once

#include <heddle/core/config/config.hpp>
#include <heddle/core/layers/registries.hpp>
#include <map>
#include <set>
#include <string>

namespace heddle {

/// Everything that a benchmark depends on. Values are kept by reference.
struct KernelBenchmark {
  Config const& config;
  Registries const& registries;
  Execution& execution;
  std::int64_t vocabulary = 0;  ///< pieces, if the configuration names no data
  bool all = false;             ///< implementations of speed 0, too
};

/// Times every implementation in the calls of a training step of the configured model, with one of the equal layers of
/// each stack, as rank 0 of the tensor group makes them. Prints tables; returns the times.
KernelTimings benchmark_kernels(KernelBenchmark const& benchmark);

/// Names of implementations by operation.
using KernelSelections = std::map<std::string, std::set<std::string>>;

/// The implementations that rank 0 of the tensor group selects to train the configured model: it is built with one of
/// the equal layers of each stack, and nothing is computed. Throws ConfigError if the configuration names or needs an
/// implementation that does not exist.
KernelSelections select_kernels(Config const& config, Registries const& registries, Execution& execution,
                                std::int64_t vocabulary);

}  // namespace heddle
