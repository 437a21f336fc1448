#pragma once

#include <heddle/core/layers/registries.hpp>
#include <heddle/dist/planning/kernel_times.hpp>
#include <heddle/dist/planning/layout_choice.hpp>
#include <heddle/dist/report/memory_plan.hpp>
#include <heddle/dist/report/traffic_report.hpp>
#include <string>
#include <vector>

namespace heddle {

/// Equal calls of a kernel.
struct KernelCalls {
  std::string kind;
  Cost cost;  ///< of one call
  double calls = 0;
};

/// A pass of a micro-batch through a part of a stage.
struct PassWork {
  std::vector<KernelCalls> kernels;
  TrafficByGroup traffic{};  ///< without the pipeline's messages
};

/// The work and the memory of one rank, for a micro-batch and for the update of its parameters.
struct RankWork {
  std::vector<PassWork> forward, backward;  ///< by part
  std::vector<std::int64_t> input_bytes;    ///< by part: the message that each pass takes, in either direction
  std::vector<std::int64_t> activations;    ///< by part: bytes kept from a forward pass to its backward pass
  std::int64_t temporary = 0;               ///< bytes of a backward pass alone
  std::int64_t kept_by_kernels = 0;         ///< bytes of packed weights
  std::int64_t parameters = 0;              ///< elements
  std::int64_t shared_elements = 0;         ///< those that other stages hold, too
  int max_holders = 1;                      ///< stages that hold one of these
  std::int64_t partial_elements = 0;        ///< those whose gradient is a sum over the tensor group
  DType parameter_dtype = DType::float32;
};

/// The ranks of one stage of a layout, seen by the last of its tensor and context groups, which has the largest share.
/// `pack`: that rank's part of a micro-batch. Nothing runs: see RehearsedRank. Throws ConfigError for an impossible
/// layout.
RankWork rehearse_stage(Config const& config, LayoutChoice const& layout, int stage, VocabularySizes const& vocabulary,
                        Registries const& registries, Pack const& pack);

/// Some of a part's layers that are alike.
struct LayerGroup {
  RankWork const* layer = nullptr;  ///< of one of them, rehearsed as a stage of its own
  std::int64_t count = 0;
};

/// The work of one of `stages` stages from that of its layers, by part. Of the tables that several layers share a stage
/// has one.
RankWork sum_of_layers(std::vector<std::vector<LayerGroup>> const& parts, int stages);

/// The rank of a layout's mesh that rehearse_stage sees: of data rank 0.
int rehearsed_rank(LayoutChoice const& layout, int stage);

/// The kernels of an update after the gradients were reduced: their norm and Adam; `owned` elements have moments here.
std::vector<KernelCalls> update_kernels(RankWork const& work, std::int64_t owned);

}  // namespace heddle
