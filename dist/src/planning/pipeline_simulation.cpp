#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/dist/planning/pipeline_simulation.hpp>
#include <numeric>

namespace heddle {

namespace {

std::vector<double> const& seconds_of(StageTimes const& stage, Pass pass) {
  switch (pass) {
    case Pass::forward:
      return stage.forward;
    case Pass::backward:
      return stage.backward;
    case Pass::weights:
      break;
  }
  return stage.weights;
}

}  // namespace

SimulatedPipeline simulate_pipeline(std::vector<StageTimes> const& stages, std::int64_t micro_batches,
                                    std::vector<double> const& first_extra) {
  auto const count = static_cast<int>(stages.size());
  auto const parts = static_cast<int>(stages.front().forward.size());
  std::vector<std::vector<PipelineAction>> actions;
  for (int stage = 0; stage < count; ++stage) {
    actions.push_back(training_actions({stage, count, parts, !stages.front().weights.empty()}, micro_batches));
  }
  int const virtual_stages = count * parts;
  // The times at which outputs are available, by pass, virtual stage and micro-batch; below 0: not yet computed.
  std::vector<double> arrivals(static_cast<std::size_t>(2 * virtual_stages * micro_batches), -1.0);
  auto const arrival = [&](Pass pass, int virtual_stage, std::int64_t micro_batch) -> double& {
    std::int64_t const row = static_cast<std::int64_t>(pass) * virtual_stages + virtual_stage;
    return arrivals[static_cast<std::size_t>(row * micro_batches + micro_batch)];
  };
  auto const input_of = [&](Pass pass, int virtual_stage, std::int64_t micro_batch) {
    if (pass == Pass::forward) {
      return virtual_stage == 0 ? 0 : arrival(pass, virtual_stage - 1, micro_batch);
    }
    return virtual_stage + 1 == virtual_stages ? arrival(Pass::forward, virtual_stage, micro_batch)
                                               : arrival(pass, virtual_stage + 1, micro_batch);
  };
  SimulatedPipeline result{.ends = std::vector<double>(stages.size()), .busy = std::vector<double>(stages.size())};
  std::vector<std::size_t> next(stages.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (int stage = 0; stage < count; ++stage) {
      auto const here = static_cast<std::size_t>(stage);
      for (; next[here] < actions[here].size(); ++next[here], moved = true) {
        auto const& [pass, part, micro_batch] = actions[here][next[here]];
        int const virtual_stage = part * count + stage;
        double const input = pass == Pass::weights ? 0 : input_of(pass, virtual_stage, micro_batch);
        if (input < 0) {
          break;
        }
        auto const index = static_cast<std::size_t>(part);
        double seconds = seconds_of(stages[here], pass)[index];
        if (micro_batch == 0 && pass == Pass::forward && !first_extra.empty()) {
          seconds += first_extra[here] / parts;
        }
        result.ends[here] = std::max(result.ends[here], input) + seconds;
        result.busy[here] += seconds;
        if (pass == Pass::weights) {
          continue;
        }
        bool const sent = count > 1 && (pass == Pass::backward || virtual_stage + 1 < virtual_stages);
        arrival(pass, virtual_stage, micro_batch) = result.ends[here] + (sent ? stages[here].message : 0);
      }
    }
  }
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    if (next[stage] < actions[stage].size()) {
      throw Error("the pipeline's schedule never ends: a pass waits for its own result");
    }
  }
  result.seconds = *std::ranges::max_element(result.ends);
  double const worked = std::accumulate(result.busy.begin(), result.busy.end(), 0.0);
  result.bubble = result.seconds > 0 ? 1 - worked / (result.seconds * count) : 0;
  return result;
}

}  // namespace heddle
