#pragma once

#include <cstdint>
#include <heddle/core/operations/observation.hpp>
#include <heddle/core/operations/work_observer.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace heddle {

/// An event of a trace, in nanoseconds of this process's steady clock. Strings are given by their numbers in
/// StepTrace::texts.
struct TraceEvent {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t number = -1;  ///< the micro-batch of a pass; the bytes of communication
  std::int32_t place = -1;   ///< the part of a pass; for a message the other rank in the world
  std::uint32_t name = 0;    ///< number of a string
  std::uint32_t detail = 0;  ///< number of a string: a kernel's extents, the group of communication
  WorkKind kind = WorkKind::step;
  Direction direction = Direction::forward;
};

/// Records where this rank's time in training steps goes: the work of the model and its kernels, as their
/// observer, and what others add. With a Kokkos tool, layers and kernels are also its regions, whether it records or
/// not.
class StepTrace final : public KernelObserver, public WorkObserver {
 public:
  /// `regions`: notify Kokkos tools; see has_kokkos_tool.
  explicit StepTrace(bool regions) : regions_(regions) {}

  void record(bool on) { recording_ = on; }
  bool recording() const { return recording_; }
  std::vector<TraceEvent> const& events() const { return events_; }
  /// The strings that events refer to; the first one is empty.
  std::vector<std::string> const& texts() const { return texts_; }

  void begin(Work const& work) override { begin(work, now()); }
  void end() noexcept override { end(now()); }
  /// At a time that the caller read, so that its own sums are those of the trace.
  void begin(Work const& work, std::int64_t time);
  void end(std::int64_t time) noexcept;
  void observe(Execution& execution, KernelCall const& call) override;

  /// A piece of reading or communication, by the caller's clock; `event` without its strings.
  void add(TraceEvent event, std::string_view name, std::string_view detail);

  static std::int64_t now();

 private:
  std::uint32_t number_of(std::string_view text);

  bool regions_;
  bool recording_ = false;
  std::vector<TraceEvent> events_;
  std::vector<std::int64_t> open_;  ///< indices of events; -1: started while nothing was recorded
  std::vector<std::string> texts_{""};
  std::unordered_map<std::string, std::uint32_t> numbers_{{"", 0}};
};

/// Whether a profiling tool of Kokkos is loaded. Kokkos must be initialised.
bool has_kokkos_tool();

}  // namespace heddle
