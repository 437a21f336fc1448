#pragma once

#include <heddle/core/config/config.hpp>
#include <heddle/core/layers/registries.hpp>
#include <map>
#include <set>
#include <string>

namespace heddle {

struct KernelBenchmark {
  Config const& config;
  Registries const& registries;
  Execution& execution;
  std::int64_t vocabulary = 0;  ///< pieces, if the configuration names no data
  bool all = false;             ///< implementations of speed 0, too
};

/// Times every implementation in the calls of a training step of the configured model with one encoder and one decoder
/// layer (the other layers are the same), as rank 0 of its tensor group makes them; prints tables; returns the times.
KernelTimings benchmark_kernels(KernelBenchmark const& benchmark);

/// Names of implementations by operation.
using KernelSelections = std::map<std::string, std::set<std::string>>;

/// The implementations that rank 0 of the tensor group selects to train the configured model with one encoder and one
/// decoder layer (the other layers are the same): the model is built, and nothing is computed. Throws ConfigError if
/// the configuration names or needs one that does not exist.
KernelSelections select_kernels(Config const& config, Registries const& registries, Execution& execution,
                                std::int64_t vocabulary);

}  // namespace heddle
