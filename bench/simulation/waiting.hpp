#pragma once

#include <mpi.h>

#include <heddle/core/operations/work_observer.hpp>
#include <vector>

namespace heddle {

/// The simulated seconds that a rank waited for inputs of the pipeline and for the end of its gradients' sum.
class WaitingTimes final : public WorkObserver {
 public:
  void begin(Work const& work) override { open_.push_back({work, MPI_Wtime()}); }
  void end() noexcept override {
    auto const& [work, began] = open_.back();
    if (work.kind == WorkKind::waiting) {
      (work.name == "pipeline.receive" ? pipeline_ : replicas_) += MPI_Wtime() - began;
    }
    open_.pop_back();
  }

  double pipeline() const { return pipeline_; }
  double replicas() const { return replicas_; }

 private:
  struct Open {
    Work work;
    double began;
  };
  std::vector<Open> open_;
  double pipeline_ = 0;
  double replicas_ = 0;
};

}  // namespace heddle
