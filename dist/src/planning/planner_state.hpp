#pragma once

#include <heddle/core/model/pipeline_plan.hpp>
#include <heddle/dist/planning/pipeline_simulation.hpp>
#include <heddle/dist/planning/planner.hpp>
#include <map>
#include <tuple>
#include <utility>

namespace heddle {

/// A micro-batch of usual size: the last context rank's part, and all its tokens on both sides.
struct TypicalPack {
  Pack pack;
  std::int64_t tokens = 0;
  double max_share = 1;  ///< tokens of the context rank that has most, divided by the last one's
};

/// The micro-batches of a data rank in a step.
struct Load {
  std::int64_t micro_batches = 1;
  double tokens = 0;  ///< of all of them, on both sides
};

/// Seconds of kernels.
struct KernelSeconds {
  double usual = 0;
  double first_extra = 0;  ///< that the first such pass after an update takes longer
  double assumed = 0;      ///< of `usual`: kernels that were never measured
  double spread = 0;       ///< seconds: of `usual`, by TimedWork::spread
};

/// The seconds of a stage's passes, by part.
struct PricedWork {
  std::vector<KernelSeconds> forward, backward;
};

/// The findings of a planner so far.
struct Planner::State {
  explicit State(PlanRequest const& from);

  TypicalPack const& typical(std::int64_t max_tokens, int context);
  Load const& load(LayoutChoice const& layout);
  PipelinePlan const& pipeline_plan(LayoutChoice const& layout);
  /// A stage's work as the sum of its layers', which many layouts share.
  RankWork composed(LayoutChoice const& layout, std::vector<IndexRange> const& parts);
  RankWork const& layer_work(LayoutChoice const& layout, std::int64_t layer);
  PricedWork const& priced(RankWork const& work);
  KernelSeconds seconds_of(std::vector<KernelCalls> const& kernels) const;

  PlanRequest request;
  ModelDescription model;
  std::map<std::pair<std::int64_t, int>, TypicalPack> packs;
  std::map<std::tuple<std::int64_t, int, bool>, Load> loads;
  std::map<std::pair<int, PipelineSchedule>, PipelinePlan> pipeline_plans;
  std::map<std::string, RankWork> works;
  std::map<std::string, RankWork> layer_works;
  std::map<RankWork const*, PricedWork> prices;
  std::int64_t priced_revision = -1;  ///< of the kernels' times
};

/// One layout's estimate.
class Planner::Estimate {
 public:
  Estimate(Planner& planner, LayoutChoice const& layout);
  LayoutPlan run();

 private:
  /// A stage's times; equal stages have the same.
  struct Stage {
    StageTimes passes;
    double first_extra = 0;
    double reduction = 0;
    double update = 0;
    KernelSeconds kernels;
    std::vector<GroupTraffic> groups;
  };
  Stage stage(RankWork const& work) const;
  /// The end of each stage's passes, and the bubble.
  SimulatedPipeline passes(std::vector<StageTimes> const& times, std::vector<double> const& first_extra) const;
  /// Adds the traffic of `times` such passes to the groups, and returns the seconds of one.
  double messages(TrafficByGroup const& traffic, double times, std::vector<GroupTraffic>& groups) const;
  StageTimes stage_times(RankWork const& work, std::vector<GroupTraffic>& groups, KernelSeconds& kernels) const;
  /// The reduction of a stage's gradients, as far as the last backward pass does not hide it.
  double reduction(RankWork const& work, double backward, std::vector<GroupTraffic>& groups) const;
  std::int64_t bucket_elements() const;
  double update(RankWork const& work, std::vector<GroupTraffic>& groups, KernelSeconds& kernels) const;
  MemoryUse memory(RankWork const& work, int stage) const;
  std::int64_t owned(RankWork const& work) const;
  double add(std::vector<GroupTraffic>& groups, std::size_t group, Verb verb, Traffic const& traffic,
             SumKind sums = SumKind::float32) const;

  Planner& planner_;
  State& state_;
  LayoutChoice layout_;
  Load load_;
  double scale_;  ///< tokens of a micro-batch, of the rank that has most, divided by those of the rehearsed pack
  std::array<GroupPlace, traffic_groups> places_;
};

}  // namespace heddle
