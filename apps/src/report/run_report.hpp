#pragma once

#include <heddle/core/layers/registries.hpp>
#include <heddle/dist/report/memory_plan.hpp>
#include <heddle/dist/training/training_engine.hpp>
#include <string>
#include <vector>

namespace heddle {

/// What a training run tells of its ranks: who holds what, what memory it takes, what they move. The constructor and
/// `end` are collective over the world; texts are the same on every rank and end with a line break.
class RunReport {
 public:
  /// Rehearses this rank's step (see plan_memory). `parallel` must outlive the report.
  RunReport(Config const& config, Registries const& registries, ParallelState const& parallel,
            VocabularySizes const& vocabulary);

  /// The mesh and the memory that training will take.
  std::string const& beginning() const { return beginning_; }
  /// The memory it took, beside the prediction, and what the groups have moved.
  std::string end(TrainingEngine& engine) const;

 private:
  ParallelState const& parallel_;
  MemoryReport memory_;
  std::string beginning_;
};

}  // namespace heddle
