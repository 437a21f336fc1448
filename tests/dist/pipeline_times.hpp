#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/base/seconds.hpp>
#include <heddle/core/operations/work_observer.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <numeric>
#include <string>
#include <vector>

namespace heddle {

/// The stages' times, over one or more steps.
struct PipelineTimes {
  double total = 0;            ///< seconds from the start of the first pass to the end of the last one, both on stage 0
  std::vector<double> busy{};  ///< seconds of each stage's passes
  std::vector<double> waited{};  ///< seconds that each stage waited for messages
  std::int64_t micro_batches = 0;
  int parts = 1;

  int stages() const { return static_cast<int>(busy.size()); }
  double idle(int stage) const { return total - busy[static_cast<std::size_t>(stage)]; }
  /// The idle share of all stages' time.
  double bubble() const {
    double const worked = std::accumulate(busy.begin(), busy.end(), 0.0);
    return total > 0 ? 1 - worked / (total * stages()) : 0;
  }
  /// The idle share if every pass of a stage took the same time and messages none, and backward passes are not split:
  /// (stages - 1) / (parts * micro_batches + stages - 1).
  double ideal_bubble() const {
    auto const later = static_cast<double>(stages() - 1);
    return later / (static_cast<double>(parts * micro_batches) + later);
  }
  /// Adds another step with the same number of micro-batches.
  void add(PipelineTimes const& step) {
    if (busy.empty()) {
      *this = step;
      return;
    }
    total += step.total;
    std::ranges::transform(busy, step.busy, busy.begin(), std::plus());
    std::ranges::transform(waited, step.waited, waited.begin(), std::plus());
  }
  /// A table: a line per stage, and the bubble measured and ideal.
  std::string to_string() const {
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
};

/// Measures this rank's passes, and its waiting for messages between them, since `clear`.
class PassTimes final : public WorkObserver {
 public:
  void clear() { *this = {}; }
  std::int64_t passes() const { return passes_; }

  void begin(Work const& work) override { open_.push_back({work, SteadyClock::now()}); }
  void end() noexcept override {
    auto const& [work, began] = open_.back();
    if (work.kind == WorkKind::pass) {
      first_ = passes_++ == 0 ? began : first_;
      last_ = SteadyClock::now();
      busy_ += seconds_since(began);
      micro_batches_ = std::max(micro_batches_, work.micro_batch + 1);
      parts_ = std::max(parts_, work.part + 1);
    } else if (work.kind == WorkKind::waiting && work.name == "pipeline.receive") {
      waited_ += seconds_since(began);
    }
    open_.pop_back();
  }

  /// The times of all stages, the same on each. Collective over `pipeline`.
  PipelineTimes gather(Communicator const& pipeline) const {
    double const total = std::chrono::duration<double>(last_ - first_).count();
    PipelineTimes times{.micro_batches = micro_batches_, .parts = parts_};
    for (auto const& [of_stage, busy, waited] : gather_values(pipeline, std::array{total, busy_, waited_})) {
      times.total = times.busy.empty() ? of_stage : times.total;
      times.busy.push_back(busy);
      times.waited.push_back(waited);
    }
    return times;
  }

 private:
  struct Open {
    Work work;
    SteadyClock::time_point began;
  };

  std::vector<Open> open_;
  SteadyClock::time_point first_, last_;
  double busy_ = 0;
  double waited_ = 0;
  std::int64_t passes_ = 0;
  std::int64_t micro_batches_ = 0;
  int parts_ = 1;
};

}  // namespace heddle
