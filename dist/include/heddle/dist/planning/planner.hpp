#pragma once

#include <heddle/core/layers/registries.hpp>
#include <heddle/core/model/pipeline_plan.hpp>
#include <heddle/dist/optimizer/gradient_reducer.hpp>
#include <heddle/dist/planning/dry_run.hpp>
#include <heddle/dist/planning/kernel_times.hpp>
#include <heddle/dist/planning/layout_choice.hpp>
#include <heddle/dist/planning/memory_plan.hpp>
#include <heddle/dist/planning/network.hpp>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace heddle {

/// Everything that a plan depends on. Values are kept by reference.
struct PlanRequest {
  Config const& config;
  Registries const& registries;
  VocabularySizes vocabulary;
  Machines machines;
  BatchSamples const& samples;  ///< at least one batch
  std::int64_t batch_tokens =
      0;  ///< tokens of a global batch: train.batch_tokens, or all of the data's if these are fewer
  std::int64_t longest_sequence = 0;  ///< the longest sequence of the data, in tokens
  NetworkModel const& network;
  KernelTimes const& times;
  double reading_seconds_per_token = 0;                        ///< seconds per token of making micro-batches
  KernelRates rates{};                                         ///< rates of kernels that `times` does not know
  std::optional<std::int64_t> bucket_elements = std::nullopt;  ///< none: GradientReducer::bucket_for
};

/// A group's traffic in a step, of the rank that waits for it longest.
struct GroupTraffic {
  std::string name;  ///< "tensor"
  GroupTopology place{};
  std::int64_t bytes = 0;  ///< payload bytes, as Traffic counts them
  double seconds = 0;      ///< seconds of messages, whether or not computation overlaps them
};

/// A layout with what a run would need.
struct LayoutPlan {
  LayoutChoice layout;
  std::vector<MemoryUse> stages{};  ///< memory of the largest rank of each stage
  std::int64_t node_bytes = 0;      ///< memory of the node whose ranks need most: MemoryNeed::total
  std::int64_t micro_batches = 0;   ///< micro-batches of a data rank in a step
  double step_seconds = 0;
  double kernel_seconds = 0;  ///< of the busiest stage: passes and update
  double reading_seconds = 0;
  double bubble = 0;  ///< idle share of the pipeline's passes
  std::vector<GroupTraffic> groups{};
  double assumed_share = 0;  ///< share of kernel_seconds for kernels that were never measured
  double spread = 0;         ///< share of kernel_seconds by which they scatter: the mean of TimedWork::spread

  /// The share by which step_seconds may be wrong: estimates of measured kernels are within about a twentieth.
  double error() const;
};

struct Plan {
  /// At most `count`, the fastest first. Layouts that are as fast as the fastest within the error of its estimate are
  /// sorted by simplicity. Their memory is what the run itself plans.
  std::vector<LayoutPlan> best{};
  std::int64_t fitting = 0;  ///< all that fit, those that are not in `best` by an estimate of their memory
  std::vector<Rejection> rejections{};
};

struct NodesPlan {
  int nodes = 1;
  std::optional<LayoutPlan> best{};  ///< none: no layout fits
};

/// The reason for which replicas cannot divide the parameters of such a run, for list_layouts; empty where they can.
std::string undivided_reason(Config const& config, KernelRegistries const& kernels);

/// Plans runs that need not exist: a pure function of the request. Layouts with equal stages share their dry runs.
/// Kokkos must be initialised.
class Planner {
 public:
  explicit Planner(PlanRequest const& request);
  Planner(Planner const&) = delete;
  Planner& operator=(Planner const&) = delete;
  ~Planner() = default;

  /// Times, traffic and an estimate of the memory (within some percent of plan_memory). Throws ConfigError for a
  /// layout that the model refuses.
  LayoutPlan estimate(LayoutChoice const& layout);
  /// Replaces the memory by that of the run's largest micro-batches, as the run itself plans it; returns every rank's.
  std::vector<MemoryNeed> plan_exactly(LayoutPlan& plan) const;
  /// The memory of every rank, as the run itself plans it or, if `first_batches`, for the request's batches only. With
  /// more than max_ranks_planned ranks, all ranks of a stage get the memory of one, the last of data rank 0.
  std::vector<MemoryNeed> memory_of_ranks(LayoutChoice const& layout, bool first_batches) const;
  static constexpr int max_ranks_planned = 16;
  /// All layouts of the machines' ranks.
  Plan best_layouts(std::size_t count);
  /// The best layout of 1, 2, 4, … nodes and of all of them.
  std::vector<NodesPlan> best_by_nodes();
  /// The rank's part of a usual micro-batch, as dry_run_stage takes it.
  Pack const& typical_pack(LayoutChoice const& layout) { return typical(layout).pack; }
  /// Whether the times of all its kernels are known: see KernelTimes::knows.
  bool has_times(LayoutChoice const& layout, bool exactly);
  /// The work of a stage, as `estimate` uses it.
  RankWork const& work(LayoutChoice const& layout, int stage);

 private:
  class Estimate;  ///< estimates the times, the traffic and the memory of one layout

  /// A micro-batch of usual size: the last context rank's part, and all its tokens on both sides.
  struct TypicalPack {
    Pack pack;
    std::int64_t tokens = 0;
    double max_share = 1;  ///< tokens of the context rank that has most, divided by the last one's
  };
  /// The micro-batches of the data rank that has the most tokens, the mean over some steps.
  struct Load {
    std::int64_t micro_batches = 1;
    double tokens = 0;  ///< tokens of all of them, on both sides
  };
  struct KernelSeconds {
    double usual = 0;
    double first_extra = 0;  ///< that the first such pass after an update takes longer
    double assumed = 0;      ///< part of `usual` for kernels that were never measured
    double spread = 0;       ///< seconds: of `usual`, by TimedWork::spread
  };
  struct PassSeconds {
    std::vector<KernelSeconds> forward, backward, weights;
  };

  TypicalPack const& typical(LayoutChoice const& layout);
  Load const& load(LayoutChoice const& layout);
  PipelinePlan const& pipeline_plan(LayoutChoice const& layout);
  /// A stage's work as the sum of its layers', which many layouts share.
  RankWork composed(LayoutChoice const& layout, std::vector<IndexRange> const& parts);
  RankWork const& layer_work(LayoutChoice const& layout, std::int64_t layer);
  PassSeconds const& pass_seconds(RankWork const& work);
  KernelSeconds seconds_of(std::vector<KernelCalls> const& kernels) const;
  /// The result of `estimate` without node_bytes.
  LayoutPlan times_of(LayoutChoice const& layout);
  /// Layouts whose memory may suffice, the fastest first.
  std::vector<LayoutPlan> estimate_all(std::vector<LayoutChoice> const& layouts, std::vector<Rejection>& rejections);

  PlanRequest request_;
  ModelDescription model_;
  // Results, which layouts share:
  std::map<std::pair<std::int64_t, MeshShape>, TypicalPack> packs_;
  std::map<std::tuple<std::int64_t, int, bool>, Load> loads_;
  std::map<std::pair<int, PipelineSchedule>, PipelinePlan> pipeline_plans_;
  std::map<std::string, RankWork> works_;
  std::map<std::string, RankWork> layer_works_;
  std::map<RankWork const*, PassSeconds> pass_seconds_;
  std::int64_t seconds_revision_ = -1;  ///< of the kernels' times
};

/// A layout's tables in text: time, memory by part, communication by group.
std::string describe_plan(LayoutPlan const& plan);
/// One line for each of the best, and one for each limit that others broke. Where a batch's tokens are the limit of
/// most layouts, that comes first.
std::string describe_best(Plan const& plan, std::int64_t batch_tokens);
/// The reasons why no layout of the machines' ranks fits, and what would help: "no layout of 64 ranks fits: …".
std::string describe_refusal(Plan const& plan, Machines const& machines);
/// One line for each number of nodes: tokens per second, their efficiency relative to the fewest nodes that a layout
/// fits into, and the time and node-hours of a run of `steps`.
std::string describe_nodes(std::vector<NodesPlan> const& plans, std::int64_t batch_tokens, std::int64_t steps);

}  // namespace heddle
