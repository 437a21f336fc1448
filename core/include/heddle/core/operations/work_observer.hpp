#pragma once

#include <cstdint>
#include <heddle/core/base/enumerations.hpp>

namespace heddle {

/// The kinds of work in a training step. The first four are nested in this order; `data` is reading and packing of
/// samples, `waiting` is for transfers that were started before, by a loop that makes them progress. A trace also has
/// the collectives of communicators and the transfers that they start.
enum class WorkKind : std::uint8_t { step, pass, layer, kernel, data, communication, waiting, transfer };
template <>
inline constexpr std::array<std::string_view, 8> value_names<WorkKind>{"step", "pass",          "layer",   "kernel",
                                                                       "data", "communication", "waiting", "transfer"};

/// `weights`: the part of a backward pass that was put off, see DeferredGradients.
enum class Direction : std::uint8_t { forward, backward, weights };
template <>
inline constexpr std::array<std::string_view, 3> value_names<Direction>{"forward", "backward", "weights"};

struct Work {
  WorkKind kind = WorkKind::layer;
  std::string_view name;  ///< lives until the end of the piece; of waiting: "pipeline.receive", group and collective
  Direction direction = Direction::forward;
  std::int64_t micro_batch = -1;  ///< the micro-batch of a pass
  int part = 0;                   ///< the part of a pass
};

/// Is notified of the start and the end of each piece of work by the thread that does it. Pieces end in the reverse
/// order of their starts.
class WorkObserver {
 public:
  virtual ~WorkObserver() = default;
  virtual void begin(Work const& work) = 0;
  virtual void end() noexcept = 0;
};

/// Reports a piece of work during its lifetime. Without an observer it costs a branch.
class WorkScope {
 public:
  WorkScope(WorkObserver* observer, Work const& work) : observer_(observer) {
    if (observer_ != nullptr) {
      observer_->begin(work);
    }
  }
  ~WorkScope() {
    if (observer_ != nullptr) {
      observer_->end();
    }
  }
  WorkScope(WorkScope const&) = delete;
  WorkScope& operator=(WorkScope const&) = delete;

 private:
  WorkObserver* observer_;
};

}  // namespace heddle
