#pragma once

#include <heddle/core/base/index_range.hpp>
#include <heddle/io/samples/synthetic_batch.hpp>

namespace heddle {

/// A range of a synthetic batch's micro-batches: a data rank's share, cut for a context rank. Keeps a reference to the
/// batch.
class SyntheticMicroBatches final : public MicroBatchSource {
 public:
  SyntheticMicroBatches(SyntheticBatch const& batch, IndexRange const& range, GroupMember const& context = {})
      : batch_(batch), range_(range), context_(context) {}

  std::int64_t count() const override { return range_.count(); }
  BatchTokens tokens() const override { return batch_.tokens(); }
  Pack micro_batch(std::int64_t index) const override { return batch_.pack(range_.begin + index, context_); }

 private:
  SyntheticBatch const& batch_;
  IndexRange range_;
  GroupMember context_;
};

}  // namespace heddle
