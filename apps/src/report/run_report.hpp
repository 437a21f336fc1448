#pragma once

#include <heddle/core/layers/registries.hpp>
#include <heddle/dist/report/memory_plan.hpp>
#include <heddle/dist/training/training_engine.hpp>
#include <string>
#include <vector>

namespace heddle {

/// A training run's report on its ranks: the mesh, their memory, and the traffic of their groups. `gather` and `end`
/// are collective over the world; texts are the same on every rank and end with a line break.
class RunReport {
 public:
  /// Rehearses this rank's step (see plan_memory). `parallel` must outlive the report.
  static RunReport gather(Config const& config, Registries const& registries, ParallelState const& parallel,
                          VocabularySizes const& vocabulary);

  /// The memory that this rank will need at most; zeros if it could not be predicted.
  MemoryPlan const& plan() const { return plan_; }
  /// The mesh and the memory that training will need.
  std::string const& beginning() const { return beginning_; }
  /// The measured memory, beside the prediction, and the traffic of the groups.
  std::string end(TrainingEngine& engine) const;

 private:
  RunReport(ParallelState const& parallel, MemoryPlan plan, std::string beginning);

  ParallelState const& parallel_;
  MemoryPlan plan_;
  std::string beginning_;
};

}  // namespace heddle
