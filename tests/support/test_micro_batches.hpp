#pragma once

#include <cstdint>
#include <heddle/core/training/micro_batch_source.hpp>
#include <utility>

namespace heddle {

/// Micro-batches that a test's function makes: make_pack(index).
template <class MakePack>
class TestMicroBatches final : public MicroBatchSource {
 public:
  TestMicroBatches(std::int64_t count, MakePack make_pack, std::int64_t target_tokens = 1,
                   SampleGroups const& groups = {})
      : count_(count), make_pack_(std::move(make_pack)), target_tokens_(target_tokens), groups_(groups) {}

  std::int64_t count() const override { return count_; }
  BatchTokens tokens() const override { return {target_tokens_, target_tokens_}; }
  Pack micro_batch(std::int64_t index) const override { return make_pack_(index); }
  SampleGroups groups() const override { return groups_; }

 private:
  std::int64_t count_;
  MakePack make_pack_;
  std::int64_t target_tokens_;
  SampleGroups groups_;
};

}  // namespace heddle
