#pragma once

#include <heddle/core/layers/registries.hpp>
#include <heddle/dist/planning/kernel_times.hpp>
#include <heddle/dist/planning/planner.hpp>

namespace heddle {

/// Everything that a measurement of kernels depends on. Values are kept by reference.
struct KernelMeasurement {
  Config const& config;
  Registries const& registries;
  Execution& execution;
  VocabularySizes vocabulary;
  Communicator const& world;  ///< its ranks measure at the same time; of each call the slowest rank's time counts
  bool only_unknown = false;  ///< calls that are known, also by interpolation, keep their times
  double now = 0;             ///< seconds since 1970, noted with the times
  double load = 0;            ///< see others_load
};

/// The load of each core by other processes (the system's mean of the last minute, without the `own` processes of this
/// job that compute); 0 if the system does not say.
double others_load(int own);

/// The number of layouts by outcome of measure_unknown.
struct MeasuredLayouts {
  int measured = 0;
  int left = 0;       ///< not measured for lack of time
  int too_large = 0;  ///< not measured for lack of memory

  bool operator==(MeasuredLayouts const&) const = default;
};

/// Adds the times of kernels' calls of layouts for which they are not known, until `seconds` have passed; a micro-batch
/// and an update that have been started are finished. For each layout, micro-batches and updates of one rank run with
/// real kernels and without the other ranks: calls in their surroundings, with the caches as a step leaves them. The
/// shortest of several rounds counts, and processor time where it is less than wall time, because other processes had
/// the core. Large models are measured with one layer of each kind. Layouts with the configured micro_batch_tokens are
/// all measured, unless `only_unknown`; between others times are interpolated. Collective over the world.
MeasuredLayouts measure_unknown(KernelMeasurement const& measurement, Planner& planner,
                                std::vector<LayoutChoice> layouts, double seconds, KernelTimes& times);

}  // namespace heddle
