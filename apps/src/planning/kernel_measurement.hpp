#pragma once

#include <heddle/core/layers/registries.hpp>
#include <heddle/dist/planning/kernel_times.hpp>
#include <heddle/dist/planning/planner.hpp>
#include <string>

namespace heddle {

/// The circumstances that the times of calls depend on: the machine, the choice of kernels, and the number of ranks of
/// a node that compute at the same time.
std::string call_circumstances(std::string const& machine, KernelChoices const& choices, KernelTimings const& timings,
                               int ranks_of_node);

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

/// Runs micro-batches and updates of a rank of this layout with real kernels and without its other ranks, and adds the
/// times of all its kernels' calls: calls in their surroundings, with the caches as a step leaves them. Of a model with
/// more than `most_elements` parameters of a rank it takes one layer of each kind. `pack`: the rank's part of a
/// micro-batch. After `most_seconds` a begun micro-batch and an update are the last. The shortest of several rounds
/// counts, and processor time where it is less than wall time, because other processes had the core. False, with
/// nothing measured, where the memory that is available here does not suffice. Collective over the world.
bool measure_calls(KernelMeasurement const& measurement, LayoutChoice const& layout, Pack const& pack,
                   double max_seconds, KernelTimes& times);

struct MeasuredLayouts {
  int measured = 0;
  int left = 0;       ///< whose kernels' times are not all known, as there was no time
  int too_large = 0;  ///< likewise, as there is no memory

  bool operator==(MeasuredLayouts const&) const = default;
};

/// Measures layouts whose kernels' times are not known, until `seconds` have passed. Of layouts with the configured
/// micro_batch_tokens every size is measured, unless `only_unknown`; of others some are interpolated. Collective over
/// the world.
MeasuredLayouts measure_unknown(KernelMeasurement const& measurement, Planner& planner,
                                std::vector<LayoutChoice> layouts, double seconds, KernelTimes& times);

}  // namespace heddle
