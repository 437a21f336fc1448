#pragma once

#include <cstdint>
#include <heddle/core/config/config.hpp>
#include <heddle/core/tasks/task.hpp>
#include <heddle/core/tensor/pack.hpp>
#include <heddle/io/dataset/dataset.hpp>
#include <heddle/io/samples/order.hpp>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// The samples of an epoch, counted without reading them.
struct SampleTotals {
  std::int64_t usable = 0;    ///< samples of at most max_length tokens on their longer side
  std::int64_t left_out = 0;  ///< the others
  std::int64_t tokens = 0;    ///< tokens of the usable samples, each counting its longer side
  std::int64_t longest = 0;   ///< the longest usable sample's tokens on its longer side
  bool estimated = false;     ///< from a part of the samples; `longest` is then an upper bound

  double share_left_out() const { return static_cast<double>(left_out) / static_cast<double>(left_out + usable); }
};

/// Whether data.train is the standard input: a stream, which is read once and in its order.
inline bool is_stream(DataConfig const& data) {
  return data.train == std::vector<std::string>{"-"};
}

/// Adds samples of one length.
void add_sample(SampleTotals& totals, std::int64_t length, std::int64_t samples, std::int64_t max_length);

/// Samples for batches: sentence pairs, or sequences of text. An epoch's samples are divided into windows; a sample has
/// an index that is unique in its epoch. Windows, costs and content are pure functions of the seed, the epoch and the
/// index, so that every rank, and a run that is resumed, sees the same. Costs of the current window are cheap. Must not
/// be used by several threads at once.
class SampleSource {
 public:
  SampleSource() = default;
  virtual ~SampleSource() = default;
  SampleSource(SampleSource const&) = delete;
  SampleSource& operator=(SampleSource const&) = delete;

  /// Whether samples are taken in the order of their indices, not shuffled: those of a stream, which has one epoch,
  /// whose windows are asked for in their order. It keeps those that a batch of its limits may need.
  virtual bool is_stream() const { return false; }
  /// The number of windows of an epoch, at least 1; of a stream, whose end is not known until the last window with
  /// samples is asked for, the largest possible one.
  virtual std::int64_t windows(std::int64_t epoch) const = 0;
  /// The indices of a window's samples, ascending. Each sample is in one window.
  virtual std::vector<std::int64_t> window(std::int64_t epoch, std::int64_t window) const = 0;
  virtual SampleCost cost(std::int64_t epoch, std::int64_t index) const = 0;
  /// The tokens that the sample's rows are to predict.
  virtual std::int64_t predicted(std::int64_t epoch, std::int64_t index) const { return cost(epoch, index).target; }
  /// into = the tokens of these samples of an epoch, whose sample numbers count from `first_number`.
  virtual void read(std::int64_t epoch, std::span<std::int64_t const> indices, std::int32_t first_number,
                    PackFields& into) const = 0;
  virtual SampleTotals totals(std::int64_t epoch, std::int64_t max_length) const = 0;
  /// "400 sentence pairs".
  virtual std::string describe() const = 0;
  /// A message where the vocabulary lacks pieces for samples as the configuration describes them; empty if it does not.
  virtual std::string warning() const { return ""; }
};

/// The cost of a pair in this form, of which `source` and `target` are tokens without end tokens.
SampleCost cost_of_pair(PairForm form, std::int64_t source, std::int64_t target);
/// into = the tokens of pairs in this form, as fill_tokens takes them: pairs, targets or prefixed.
void fill_pairs(PackFields& into, std::span<Sample const> pairs, PairForm form, SideIds const& ids);

/// Pairs in memory, the same in every epoch, in one window; a pair keeps its own sample number.
class MemorySamples final : public SampleSource {
 public:
  /// Pairs have no begin and end tokens; `ids` are the special ids of their vocabularies.
  MemorySamples(std::vector<Sample> pairs, SideIds const& ids) : pairs_(std::move(pairs)), ids_(ids) {}

  std::int64_t windows(std::int64_t /*epoch*/) const override { return 1; }
  std::vector<std::int64_t> window(std::int64_t epoch, std::int64_t window) const override;
  SampleCost cost(std::int64_t /*epoch*/, std::int64_t index) const override {
    Sample const& pair = pairs_[static_cast<std::size_t>(index)];
    return {std::ssize(pair.source.tokens) + 1, std::ssize(pair.target.tokens) + 1};
  }
  void read(std::int64_t epoch, std::span<std::int64_t const> indices, std::int32_t first_number,
            PackFields& into) const override;
  SampleTotals totals(std::int64_t epoch, std::int64_t max_length) const override;
  std::string describe() const override;

 private:
  std::vector<Sample> pairs_;
  SideIds ids_;
};

/// The pairs of a dataset. Which ones are in a window follows from the seed and the epoch; without a seed they are in
/// the dataset's order. Keeps a reference to the dataset.
class DatasetSamples final : public SampleSource {
 public:
  /// `tag` is prepended to each source, which the form must have; `warning` is about it. Samples have those of `fields`
  /// that the dataset has.
  explicit DatasetSamples(Dataset const& dataset, PairForm form = PairForm::pairs,
                          std::optional<std::uint64_t> seed = std::nullopt, std::vector<std::int32_t> tag = {},
                          std::string warning = "", SampleFields fields = {});

  std::int64_t windows(std::int64_t /*epoch*/) const override { return order_.windows(); }
  std::vector<std::int64_t> window(std::int64_t epoch, std::int64_t window) const override {
    return order_.window(epoch, window);
  }
  SampleCost cost(std::int64_t epoch, std::int64_t index) const override;
  std::int64_t predicted(std::int64_t /*epoch*/, std::int64_t index) const override {
    return dataset_.length(SampleLength::target, index) + 1;
  }
  void read(std::int64_t epoch, std::span<std::int64_t const> indices, std::int32_t first_number,
            PackFields& into) const override;
  SampleTotals totals(std::int64_t epoch, std::int64_t max_length) const override;
  std::string describe() const override;
  std::string warning() const override { return warning_; }

 private:
  void read(std::int64_t index, std::int32_t number, Sample& pair) const;

  Dataset const& dataset_;
  PairForm form_;
  SampleFields fields_;
  WindowOrder order_;
  std::vector<std::int32_t> tag_;
  std::string warning_;
  /// With a tag, by max_length: found by asking for every sample's cost.
  mutable std::map<std::int64_t, SampleTotals> tagged_totals_;
  mutable std::vector<Sample> pairs_;  ///< of the latest pack; the vectors are used again
};

/// Puts the tokens of a tag before a source's, after the token of a language with which it may begin.
void put_tag(Dataset const& dataset, std::vector<std::int32_t> const& tag, Sample& pair);

/// The way in which samples are used.
struct SampleUse {
  bool training = true;   ///< order and masks follow train.seed; otherwise the data's order, and masks no key changes
  bool prefixes = false;  ///< samples have prefixes (ModelDescription::needs_prefixes)
  SampleFields fields = {};  ///< fields that samples have where their dataset does
  CorpusConfig corpus = {};  ///< the corpus of samples that are mixed with others, or whose tag they have

  /// The seed of order and masks; none: not random. Corpora of a mixture have different ones.
  std::optional<std::uint64_t> seed(TrainConfig const& train) const;
};

/// The samples that a task makes of a dataset: of pairs as the task says, or of lines. Keeps a reference to the
/// dataset. Throws ConfigError, naming the task, the dataset and what would help, where the two do not fit.
std::unique_ptr<SampleSource> samples_for(Config const& config, Task const& task, Dataset const& dataset,
                                          SampleUse const& use);

}  // namespace heddle
