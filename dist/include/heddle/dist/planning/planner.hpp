#pragma once

#include <heddle/core/layers/registries.hpp>
#include <heddle/dist/optimizer/gradient_reducer.hpp>
#include <heddle/dist/planning/kernel_times.hpp>
#include <heddle/dist/planning/layout_choice.hpp>
#include <heddle/dist/planning/network_model.hpp>
#include <heddle/dist/planning/rank_work.hpp>
#include <heddle/dist/report/memory_plan.hpp>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace heddle {

/// Everything that a plan depends on. Values are kept by reference.
struct PlanRequest {
  Config const& config;
  Registries const& registries;
  VocabularySizes vocabulary;
  Machines machines;
  BatchSamples const& samples;    ///< at least one batch
  std::int64_t batch_tokens = 0;  ///< of a global batch: train.batch_tokens, or all of the data's if these are fewer
  std::int64_t longest_sequence = 0;  ///< of the data
  NetworkModel const& network;
  KernelTimes const& times;
  double reading_seconds_per_token = 0;                        ///< of making micro-batches
  KernelRates rates{};                                         ///< of kernels that `times` does not know
  std::optional<std::int64_t> bucket_elements = std::nullopt;  ///< none: GradientReducer::bucket_for
};

/// A group's traffic in a step, of the rank that waits for it longest.
struct GroupTraffic {
  std::string name;  ///< "tensor"
  GroupPlace place{};
  std::int64_t bytes = 0;  ///< as Traffic counts them
  double seconds = 0;      ///< of messages, whether or not computation overlaps them
};

/// A layout with what a run would need.
struct LayoutPlan {
  LayoutChoice layout;
  std::vector<MemoryUse> stages{};  ///< of the largest rank of each stage
  std::int64_t node_bytes = 0;      ///< of the node whose ranks take most
  std::int64_t micro_batches = 0;   ///< of a data rank in a step
  double step_seconds = 0;
  double kernel_seconds = 0;  ///< of the busiest stage: passes and update
  double reading_seconds = 0;
  double bubble = 0;  ///< idle share of the pipeline's passes
  std::vector<GroupTraffic> groups{};
  double assumed_share = 0;  ///< of kernel_seconds: kernels that were never measured
};

/// The layouts that fit, the fastest first.
struct Plan {
  std::vector<LayoutPlan> best{};  ///< at most as many as asked for; their memory is that of the run's own plan
  std::int64_t fitting = 0;        ///< all that fit, those that are not in `best` by an estimate of their memory
  std::vector<Rejection> rejections{};
};

/// Plans runs that need not exist: a pure function of the request. Layouts with equal stages share their rehearsals.
/// Kokkos must be initialised.
class Planner {
 public:
  explicit Planner(PlanRequest const& request);
  ~Planner();
  Planner(Planner const&) = delete;
  Planner& operator=(Planner const&) = delete;

  /// Times, traffic and an estimate of the memory (within some percent of plan_memory). Throws ConfigError for a
  /// layout that the model refuses.
  LayoutPlan estimate(LayoutChoice const& layout);
  /// Replaces the memory by that of the largest possible micro-batches, as the run itself plans it.
  void plan_exactly(LayoutPlan& plan) const;
  /// The memory of the largest rank of each stage in training on the request's batches.
  std::vector<MemoryUse> expected_memory(LayoutChoice const& layout) const;
  /// All layouts of the machines' ranks.
  Plan best_layouts(std::size_t count);
  /// The rank's part of a usual micro-batch, as rehearse_stage takes it.
  Pack const& typical_pack(LayoutChoice const& layout);
  /// Whether the times of all its kernels are known: see KernelTimes::knows.
  bool knows_times(LayoutChoice const& layout, bool exactly);
  /// The work of a stage, as `estimate` uses it.
  RankWork const& work(LayoutChoice const& layout, int stage);

 private:
  class Estimate;
  struct State;
  std::unique_ptr<State> state_;
};

/// A layout's tables in text: time, memory by part, communication by group.
std::string describe_plan(LayoutPlan const& plan);
/// One line for each of the best, and one for each limit that others broke.
std::string describe_best(Plan const& plan, std::int64_t batch_tokens);

}  // namespace heddle
