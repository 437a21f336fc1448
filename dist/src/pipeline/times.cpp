#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/dist/pipeline/times.hpp>
#include <numeric>

namespace heddle {

double PipelineTimes::bubble() const {
  double const worked = std::accumulate(busy.begin(), busy.end(), 0.0);
  return total > 0 ? 1 - worked / (total * stages()) : 0;
}

double PipelineTimes::ideal_bubble() const {
  auto const behind = static_cast<double>(stages() - 1);
  return behind / (static_cast<double>(parts * micro_batches) + behind);
}

void PipelineTimes::add(PipelineTimes const& step) {
  if (busy.empty()) {
    *this = step;
    return;
  }
  total += step.total;
  for (std::size_t stage = 0; stage < busy.size(); ++stage) {
    busy[stage] += step.busy[stage];
    waited[stage] += step.waited[stage];
  }
}

std::string PipelineTimes::to_string() const {
  std::string text =
      fmt::format("{:>5}  {:>10}  {:>10}  {:>10}  {:>6}\n", "stage", "busy, ms", "idle, ms", "waiting, ms", "idle");
  for (int stage = 0; stage < stages(); ++stage) {
    auto const index = static_cast<std::size_t>(stage);
    text += fmt::format("{:>5}  {:>10.2f}  {:>10.2f}  {:>11.2f}  {:>5.1f}%\n", stage, 1e3 * busy[index],
                        1e3 * idle(stage), 1e3 * waited[index], 100 * idle(stage) / total);
  }
  return text + fmt::format("bubble {:.4f} measured, {:.4f} ideal: {} stages, {} micro-batches, {} part{} a stage\n",
                            bubble(), ideal_bubble(), stages(), readable_count(micro_batches), parts,
                            parts == 1 ? "" : "s");
}

PipelineTimes gather_times(Communicator const& pipeline, std::vector<PipelineEvent> const& events) {
  constexpr std::size_t columns = 3;  // total, busy, waited
  std::array<double, columns> mine{};
  PipelineTimes times;
  if (!events.empty()) {
    mine[0] = events.back().end - events.front().begin;
  }
  for (PipelineEvent const& event : events) {
    mine[1] += event.end - event.begin - event.waited;
    mine[2] += event.waited;
    times.parts = std::max(times.parts, event.action.part + 1);
    times.micro_batches = std::max(times.micro_batches, event.action.micro_batch + 1);
  }
  auto const table = gather_values(pipeline, mine);
  times.total = table.front()[0];
  for (auto const& [total, busy, waited] : table) {
    times.busy.push_back(busy);
    times.waited.push_back(waited);
  }
  return times;
}

}  // namespace heddle
