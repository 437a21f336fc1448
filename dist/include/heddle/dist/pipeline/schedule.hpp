#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace heddle {

/// `weights`: the second part of a backward pass that is split, the gradients of weights. The first part, which the
/// stage before waits for, is then `backward`.
enum class Pass : std::uint8_t { forward, backward, weights };

/// One pass of a micro-batch through one part of a stage.
struct PipelineAction {
  Pass pass = Pass::forward;
  int part = 0;
  std::int64_t micro_batch = 0;

  bool operator==(PipelineAction const&) const = default;
};

/// A stage's place: micro-batches pass virtual stage part * stages + stage of all stages × parts in order.
struct PipelinePosition {
  int stage = 0;
  int stages = 1;
  int parts = 1;
  bool split_backward = false;
};

/// The actions of a stage in a training step, in order: each part's forward and backward once per micro-batch. If
/// every stage follows its list, receives when an action needs it and never waits for its sends, there is no deadlock.
///
/// One part: 1F1B (Narayanan et al. 2021, §2.2): stages - stage - 1 forwards, then one forward and one backward in
/// turn; at most stages - stage micro-batches are in flight. More parts: the interleaved schedule of the same paper;
/// groups of `stages` micro-batches pass one part after the other. If their number is not a multiple, the groups are
/// larger (below twice as large), which costs memory instead of time. With at least as many micro-batches as stages
/// and equal times, a stage idles (stages - 1) / (parts * micro_batches + stages - 1) of the step.
///
/// With split_backward stage s does a weights' pass when s later backward passes are done (ZB-H1, Qi et al. 2023). If
/// the three passes take equal times a stage idles (stages - 1) / (3 * parts * micro_batches + stages - 1) of the step,
/// and no stage has more in flight than the first.
std::vector<PipelineAction> training_actions(PipelinePosition const& place, std::int64_t micro_batches);

std::vector<PipelineAction> forward_actions(PipelinePosition const& place, std::int64_t micro_batches);

/// The maximum number of passes with a finished forward and an unfinished backward (weights, where it is split): the
/// sets of activations that a stage holds.
std::int64_t max_in_flight(std::span<PipelineAction const> actions);

}  // namespace heddle
