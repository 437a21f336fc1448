#pragma once

#include <heddle/core/training/micro_batch_source.hpp>
#include <heddle/dist/watch/watch.hpp>

namespace heddle {

/// A source whose micro-batches are signs of progress for the watch: a batch may take long on one rank.
class WatchedMicroBatches final : public MicroBatchSource {
 public:
  WatchedMicroBatches(MicroBatchSource const& source, Watch& watch) : source_(source), watch_(watch) {}

  std::int64_t count() const override { return source_.count(); }
  BatchTokens tokens() const override { return source_.tokens(); }
  Pack micro_batch(std::int64_t index) const override {
    watch_.heartbeat();
    return source_.micro_batch(index);
  }
  SampleGroups groups() const override { return source_.groups(); }

 private:
  MicroBatchSource const& source_;
  Watch& watch_;
};

}  // namespace heddle
