#include <algorithm>
#include <deque>
#include <heddle/dist/pipeline/schedule.hpp>

namespace heddle {
namespace {

/// The number of groups of micro-batches: none has fewer than `stages`, unless there are fewer in total.
std::int64_t groups_of(std::int64_t micro_batches, int stages) {
  return std::max<std::int64_t>(micro_batches / stages, 1);
}

/// The number of forward passes before the first backward.
std::int64_t warm_up(PipelinePosition const& place, std::int64_t micro_batches) {
  std::int64_t const later = place.stages - place.stage - 1;  // stages after this one
  if (place.parts == 1) {
    return std::min(later, micro_batches);
  }
  std::int64_t const groups = groups_of(micro_batches, place.stages);
  std::int64_t const largest = (micro_batches + groups - 1) / groups;
  return std::min(2 * later + (place.parts - 1) * largest, place.parts * micro_batches);
}

}  // namespace

std::vector<PipelineAction> forward_actions(PipelinePosition const& place, std::int64_t micro_batches) {
  std::vector<PipelineAction> actions;
  std::int64_t const groups = groups_of(micro_batches, place.stages);
  for (std::int64_t group = 0; group < groups; ++group) {
    std::int64_t const end = micro_batches * (group + 1) / groups;
    for (int part = 0; part < place.parts; ++part) {
      for (std::int64_t micro_batch = micro_batches * group / groups; micro_batch < end; ++micro_batch) {
        actions.push_back({Pass::forward, part, micro_batch});
      }
    }
  }
  return actions;
}

std::vector<PipelineAction> training_actions(PipelinePosition const& place, std::int64_t micro_batches) {
  std::vector<PipelineAction> const forwards = forward_actions(place, micro_batches);
  std::vector<PipelineAction> actions;
  std::deque<PipelineAction> put_off;
  auto const take_weights = [&](std::int64_t left) {
    for (; std::ssize(put_off) > left; put_off.pop_front()) {
      actions.push_back(put_off.front());
    }
  };
  auto const ahead = static_cast<std::size_t>(warm_up(place, micro_batches));
  for (std::size_t index = 0; index < forwards.size() + ahead; ++index) {
    if (index < forwards.size()) {
      actions.push_back(forwards[index]);
    }
    if (index >= ahead) {
      // Backward passes are in the order of the forward ones, but the parts from the last to the first.
      PipelineAction const& mirrored = forwards[index - ahead];
      actions.push_back({Pass::backward, place.parts - 1 - mirrored.part, mirrored.micro_batch});
      if (place.split_backward) {
        put_off.push_back(actions.back());
        put_off.back().pass = Pass::weights;
        take_weights(place.stage);
      }
    }
  }
  take_weights(0);
  return actions;
}

std::int64_t max_in_flight(std::span<PipelineAction const> actions) {
  std::int64_t now = 0;
  std::int64_t max = 0;
  Pass const last = actions.empty() ? Pass::backward : actions.back().pass;
  for (PipelineAction const& action : actions) {
    now += action.pass == Pass::forward ? 1 : action.pass == last ? -1 : 0;
    max = std::max(max, now);
  }
  return max;
}

}  // namespace heddle
