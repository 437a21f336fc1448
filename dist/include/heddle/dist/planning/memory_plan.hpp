#pragma once

#include <cstdint>
#include <heddle/core/config/config.hpp>
#include <heddle/core/layers/registries.hpp>
#include <heddle/core/model/model_chunk.hpp>
#include <heddle/core/training/planned_packs.hpp>
#include <heddle/dist/pipeline/pipeline.hpp>
#include <heddle/dist/planning/dry_run.hpp>
#include <memory>
#include <string>
#include <vector>

namespace heddle {

class TrainingEngine;

struct MemoryUse {
  std::int64_t parameters = 0;
  std::int64_t gradients = 0;
  std::int64_t state = 0;        ///< of the optimizer
  std::int64_t kernels = 0;      ///< memory that kernels keep between calls, mainly packed copies of weights
  std::int64_t activations = 0;  ///< memory of micro-batches in flight, messages, a backward pass: PipelineMemory

  std::int64_t total() const { return parameters + gradients + state + kernels + activations; }
  bool operator==(MemoryUse const&) const = default;
};

/// Each number is function(one's, other's), as of std::plus.
template <class Function>
MemoryUse combined(MemoryUse const& one, MemoryUse const& other, Function const& function) {
  return {.parameters = function(one.parameters, other.parameters),
          .gradients = function(one.gradients, other.gradients),
          .state = function(one.state, other.state),
          .kernels = function(one.kernels, other.kernels),
          .activations = function(one.activations, other.activations)};
}

/// A rank's memory, also what the tables of MemoryUse do not have.
struct MemoryNeed {
  MemoryUse use;
  std::int64_t packs = 0;    ///< upper bound of the samples of a step and packs of them, on the host
  std::int64_t scratch = 0;  ///< upper bound of what a kernel's call needs: the call's own operands

  /// For MPI's buffers, the allocator's losses and samples that differ from those planned for: a twentieth of the
  /// rest, at least 32 MiB.
  std::int64_t margin() const;
  std::int64_t total() const { return use.total() + packs + scratch + margin(); }
};

struct MemorySum {
  int ranks = 0;
  MemoryUse use;
  std::int64_t packs = 0;
  std::int64_t scratch = 0;
  std::int64_t margin = 0;

  void add(MemoryNeed const& more);
  std::int64_t total() const { return use.total() + packs + scratch + margin; }
};

/// The maximum of the memory that training needs.
struct MemoryPlan : MemoryNeed {
  PipelineMemory pipeline;              ///< the activations, arena by arena; in a pipeline `use` has some more
  std::vector<SelectedKernel> kernels;  ///< the model's, sorted and unique; without the optimizer's
};

/// A data rank's part of a global batch.
struct BatchShare {
  std::int64_t micro_batches = 0;
  std::int64_t tokens = 0;  ///< source and target, on all its context ranks
};

/// Global batches that a plan is made for.
class BatchSamples {
 public:
  virtual ~BatchSamples() = default;

  virtual int batches() const = 0;
  /// A rank's micro-batches of batch [0, batches()), as a run would cut them.
  virtual std::unique_ptr<MicroBatchSource> cut(int batch, MicroBatchCut const& cut) const = 0;
  /// The size of what a cut without a context group gives. By default all its micro-batches are made for it.
  virtual BatchShare share_of(int batch, MicroBatchCut const& cut) const;
  /// The micro-batches of a run that need the most memory on the mesh's rank. By default bounds for any data.
  virtual PlannedPacks largest(Config const& config, Mesh const& mesh) const { return full_packs(config, mesh); }
  /// The largest micro-batches of these batches only, without validation.
  PlannedPacks of_batches(Config const& config, Mesh const& mesh) const;
};

/// Plans the memory of training on the mesh's rank, which need not run. Exact: parameters, gradients, state and
/// kernels' packed weights. Activations are those of a dry run of steps and of a validation with `packs`: those of
/// the run's largest micro-batches. Kernels are those that the configuration selects; operations without any registered
/// kernel keep nothing. Not included: MPI's buffers, the program, the gradients that train.deterministic keeps, and
/// beam search. Kokkos must be initialised. Throws ConfigError for an impossible layout and where the system refuses
/// the addresses of the parameters.
MemoryPlan plan_memory(Config const& config, Mesh const& mesh, VocabularySizes const& vocabulary,
                       Registries const& registries, PlannedPacks const& packs);

/// Measures the memory that an engine has used so far.
MemoryUse measure_memory(TrainingEngine& engine);

struct MemoryReport {
  MemoryUse predicted;
  MemoryUse measured;
  std::int64_t resident = 0;  ///< resident memory of the process
};

/// Tables in MiB: the prediction, and the measured memory below it. Adjacent ranks with equal numbers share a line
/// (with the largest of `resident`); instead of more than 32 lines they have the minimum and the maximum.
std::string describe_prediction(std::vector<MemoryReport> const& ranks);
std::string describe_memory(std::vector<MemoryReport> const& ranks);

}  // namespace heddle
