#pragma once

#include <array>
#include <deque>
#include <heddle/dist/trace/step_times.hpp>
#include <string_view>

#include "watch/decorated_backend.hpp"

namespace heddle {

/// A group's seconds by verb.
struct MeasuredGroup {
  NamedGroup group;
  std::array<std::int64_t, verbs> nanoseconds{};
};

/// A verb that is called, or a transfer that is waited for.
struct MeasuredCall {
  Verb verb = Verb::barrier;
  std::int64_t bytes = -1;
  int peer = -1;         ///< of a message: the other rank in the group
  bool started = false;  ///< the verb was called before: this is its progress or its end

  static MeasuredCall of(VerbCall const& call);
};

struct StepTimes::State {
  MeasuredGroup& group_named(std::string_view name);
  // While a verb is in progress, others inside it are not measured.
  void enter();
  void leave(MeasuredGroup& group, MeasuredCall const& call);
  /// Adds a transfer that has ended to the trace.
  void add_transfer(MeasuredGroup const& group, MeasuredCall const& call, std::int64_t began);
  bool traces() const { return trace != nullptr && trace->recording(); }
  void add_to_trace(WorkKind kind, MeasuredGroup const& group, MeasuredCall const& call, std::int64_t began,
                    std::int64_t ended);

  StepTrace* trace = nullptr;
  Seconds seconds;
  bool in_step = false;
  int depth = 0;
  std::int64_t entered = 0;
  std::deque<MeasuredGroup> groups;
};

}  // namespace heddle
