#pragma once

#include <heddle/core/parallel/communicator.hpp>
#include <heddle/dist/pipeline/schedule.hpp>
#include <string>

namespace heddle {

/// The times of an action, in seconds of this rank's own clock.
struct PipelineEvent {
  PipelineAction action;
  double begin = 0;
  double end = 0;
  double waited = 0;  ///< of end - begin, until its input had come
};

/// The stages' times, over one or more steps.
struct PipelineTimes {
  double total = 0;            ///< seconds from the first forward's begin to the last backward's end, both on stage 0
  std::vector<double> busy;    ///< seconds of each stage's actions without their waiting
  std::vector<double> waited;  ///< seconds of each stage's actions spent waiting; idle time outside them is not in it
  std::int64_t micro_batches = 0;
  int parts = 1;

  int stages() const { return static_cast<int>(busy.size()); }
  double idle(int stage) const { return total - busy[static_cast<std::size_t>(stage)]; }
  /// The idle share of all stages' time.
  double bubble() const;
  /// The idle share if every pass of a stage took the same time and messages none:
  /// (stages - 1) / (parts * micro_batches + stages - 1).
  double ideal_bubble() const;
  /// Adds another step with the same number of micro-batches.
  void add(PipelineTimes const& step);
  /// A table in text: a line per stage, and the bubble measured and ideal.
  std::string to_string() const;
};

/// The times of a step whose events on this rank are these; the same on every stage. Collective over `pipeline`.
PipelineTimes gather_times(Communicator const& pipeline, std::vector<PipelineEvent> const& events);

}  // namespace heddle
