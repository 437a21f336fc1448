#pragma once

#include <algorithm>
#include <cstdint>
#include <heddle/core/config/config.hpp>
#include <heddle/core/tensor/pack.hpp>
#include <heddle/io/dataset/dataset.hpp>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// Tokens of a sample's sides, end tokens included.
struct SampleCost {
  std::int64_t source = 0;
  std::int64_t target = 0;

  /// The cost in a token budget: the longer side.
  std::int64_t longer() const { return std::max(source, target); }
};

/// Samples for batches: sentence pairs, or sequences of text. Cost and content of sample i of an epoch are pure
/// functions of the seed, the epoch and i, so that every rank, and a run that is resumed, sees the same. Costs are read
/// for whole epochs and are cheap. Must not be used by several threads at once.
class SampleSource {
 public:
  SampleSource() = default;
  virtual ~SampleSource() = default;
  SampleSource(SampleSource const&) = delete;
  SampleSource& operator=(SampleSource const&) = delete;

  /// The number of samples in an epoch.
  virtual std::int64_t size(std::int64_t epoch) const = 0;
  virtual SampleCost cost(std::int64_t epoch, std::int64_t index) const = 0;
  /// The tokens that the sample's rows are to predict.
  virtual std::int64_t predicted(std::int64_t epoch, std::int64_t index) const { return cost(epoch, index).target; }
  /// The pack of these samples of an epoch, whose sample numbers count from `first_number`; with a split over several
  /// ranks this rank's part of it.
  virtual Pack pack(std::int64_t epoch, std::span<std::int64_t const> indices, std::int32_t first_number,
                    GroupMember split) const = 0;
  /// An epoch's samples in words: "400 sentence pairs".
  virtual std::string words(std::int64_t epoch) const = 0;
};

/// Samples that are sentence pairs.
class PairSource : public SampleSource {
 public:
  /// The pair without begin and end tokens, with `number` as its sample number.
  virtual SentencePair sample(std::int64_t epoch, std::int64_t index, std::int32_t number) const = 0;
  /// Of the vocabularies that the samples' tokens are of.
  virtual SideIds ids() const = 0;

  Pack pack(std::int64_t epoch, std::span<std::int64_t const> indices, std::int32_t first_number,
            GroupMember split) const final;
  std::string words(std::int64_t epoch) const override;
};

/// The pairs of a dataset, the same in every epoch. Keeps a reference to the dataset.
class DatasetSamples final : public PairSource {
 public:
  explicit DatasetSamples(Dataset const& dataset) : dataset_(dataset) {}

  std::int64_t size(std::int64_t /*epoch*/) const override { return dataset_.size(); }
  SampleCost cost(std::int64_t /*epoch*/, std::int64_t index) const override {
    return {dataset_.source_length(index) + 1, dataset_.target_length(index) + 1};
  }
  SentencePair sample(std::int64_t /*epoch*/, std::int64_t index, std::int32_t number) const override {
    return {number, dataset_.source(index), dataset_.target(index)};
  }
  SideIds ids() const override { return dataset_.vocabulary().special_ids(); }

 private:
  Dataset const& dataset_;
};

/// Pairs in memory, the same in every epoch; a pair keeps its own sample number.
class MemorySamples final : public PairSource {
 public:
  MemorySamples(std::vector<SentencePair> pairs, SideIds const& ids) : pairs_(std::move(pairs)), ids_(ids) {}

  std::int64_t size(std::int64_t /*epoch*/) const override { return static_cast<std::int64_t>(pairs_.size()); }
  SampleCost cost(std::int64_t /*epoch*/, std::int64_t index) const override {
    SentencePair const& pair = pairs_[static_cast<std::size_t>(index)];
    return {static_cast<std::int64_t>(pair.source.size()) + 1, static_cast<std::int64_t>(pair.target.size()) + 1};
  }
  SentencePair sample(std::int64_t /*epoch*/, std::int64_t index, std::int32_t /*number*/) const override {
    return pairs_[static_cast<std::size_t>(index)];
  }
  SideIds ids() const override { return ids_; }

 private:
  std::vector<SentencePair> pairs_;
  SideIds ids_;
};

/// The targets of a dataset's pairs, for a model that has no encoder: sources cost nothing and are not read. The same
/// in every epoch. Keeps a reference to the dataset.
class TargetSamples final : public PairSource {
 public:
  explicit TargetSamples(Dataset const& dataset) : dataset_(dataset) {}

  std::int64_t size(std::int64_t /*epoch*/) const override { return dataset_.size(); }
  SampleCost cost(std::int64_t /*epoch*/, std::int64_t index) const override {
    return {0, dataset_.target_length(index) + 1};
  }
  SentencePair sample(std::int64_t /*epoch*/, std::int64_t index, std::int32_t number) const override {
    return {number, {}, dataset_.target(index)};
  }
  SideIds ids() const override { return dataset_.vocabulary().special_ids(); }

 private:
  Dataset const& dataset_;
};

/// The pairs of a dataset with a joint vocabulary as single sequences for a decoder alone (Raffel et al. 2020, "prefix
/// LM"): begin token, source, end token and target. All up to the source's end token is the prefix; the target and its
/// end token are predicted. The same in every epoch. Keeps a reference to the dataset.
class PrefixedPairs final : public SampleSource {
 public:
  explicit PrefixedPairs(Dataset const& dataset) : dataset_(dataset) {}

  std::int64_t size(std::int64_t /*epoch*/) const override { return dataset_.size(); }
  SampleCost cost(std::int64_t /*epoch*/, std::int64_t index) const override {
    return {0, dataset_.source_length(index) + 2 + dataset_.target_length(index)};
  }
  std::int64_t predicted(std::int64_t /*epoch*/, std::int64_t index) const override {
    return dataset_.target_length(index) + 1;
  }
  Pack pack(std::int64_t epoch, std::span<std::int64_t const> indices, std::int32_t first_number,
            GroupMember split) const override;
  std::string words(std::int64_t epoch) const override;

 private:
  Dataset const& dataset_;
};

/// The way in which samples are used.
struct SampleUse {
  bool training = true;   ///< order and masks follow train.seed; otherwise the data's order, and masks no key changes
  bool prefixes = false;  ///< samples have prefixes (ModelDescription::needs_prefixes)
};

/// Whether a model learns to predict masked tokens: an encoder without decoder.
bool predicts_masked_tokens(ModelConfig const& model);

/// The samples that a model learns from: pairs; sequences of a dataset of lines for a model of one stack, with masked
/// tokens for an encoder; or, for a decoder alone, the targets of pairs, or with prefixes sources and targets. Keeps a
/// reference to the dataset. Throws
/// ConfigError, naming model.stacks, the dataset and a remedy, where the two do not fit.
std::unique_ptr<SampleSource> samples_for(Config const& config, Dataset const& dataset, SampleUse use);

}  // namespace heddle
