#pragma once

#include <cstdint>
#include <heddle/core/config/config.hpp>
#include <heddle/core/layers/registries.hpp>
#include <heddle/core/model/model_part.hpp>
#include <string>
#include <vector>

namespace heddle {

class TrainingEngine;

/// Bytes of one rank.
struct MemoryUse {
  std::int64_t parameters = 0;
  std::int64_t gradients = 0;
  std::int64_t moments = 0;
  std::int64_t kernels = 0;      ///< what kernels keep between calls, packed copies of weights above all
  std::int64_t activations = 0;  ///< of micro-batches in flight, messages, a backward pass's own: Pipeline::peak_bytes

  std::int64_t total() const { return parameters + gradients + moments + kernels + activations; }
  bool operator==(MemoryUse const&) const = default;
};

/// Plans the memory of training on the mesh's rank, which need not run: parameters, gradients, moments and kernels'
/// packed weights exactly; activations as a rehearsal of a step (and of a validation, where there are any) with the
/// largest micro-batches finds them, both sides of which have train.micro_batch_tokens tokens, or batch_tokens / data
/// where that is less. Real sides are rarely full both, so real activations are rarely more. Kernels are those that the
/// configuration selects; operations that nobody has registered keep nothing. Left out are MPI's buffers, the program,
/// the gradients that train.deterministic keeps, and beam search. Kokkos runs. Throws ConfigError for a layout that
/// cannot be.
MemoryUse plan_memory(Config const& config, Mesh const& mesh, VocabularySizes const& vocabulary,
                      Registries const& registries);

/// Measures the memory that an engine has taken so far.
MemoryUse measure_memory(TrainingEngine& engine);

/// The most memory that this process has ever had resident, in bytes, as the system reports it; 0 where it does not.
std::int64_t peak_resident_bytes();

/// A rank's memory, before and after.
struct MemoryReport {
  MemoryUse predicted;
  MemoryUse measured;
  std::int64_t resident = 0;  ///< of the process
};

/// Every rank's, in rank order, on all ranks. Collective over `world`.
std::vector<MemoryReport> gather_memory(Communicator const& world, MemoryReport const& own);

/// Tables for people, in MiB: the prediction, and the measured memory below it. A line for neighbours that are alike
/// (of `resident` the most of them); instead of more than 32 lines the least and the most.
std::string describe_prediction(std::vector<MemoryReport> const& ranks);
std::string describe_memory(std::vector<MemoryReport> const& ranks);

}  // namespace heddle
