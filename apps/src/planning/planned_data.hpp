#pragma once

#include <heddle/core/model/description.hpp>
#include <heddle/dist/planning/memory_plan.hpp>
#include <heddle/io/samples/batches.hpp>
#include <heddle/io/samples/run_packs.hpp>
#include <heddle/io/samples/training_data.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace heddle {

/// The data that a plan is made for: the first batches of the configured dataset, not more than the run has; without a
/// dataset random sentence pairs of 10 to 50 tokens.
class PlannedData final : public BatchSamples {
 public:
  static constexpr int planned_batches = 16;
  static constexpr int random_batches = 2;

  /// Opens data.train, and the validation sets where a run would validate. `vocabulary` counts the pieces of random
  /// sentences. Throws as training does where the data do not fit the task, and ConfigError for a task that is trained
  /// on text or a model with prefixes if there are no data.
  static std::unique_ptr<PlannedData> open(Config const& config, Registries const& registries, std::int64_t vocabulary);

  int batches() const override { return static_cast<int>(batches_.size()); }
  std::unique_ptr<MicroBatchSource> cut(int batch, MicroBatchCut const& cut) const override;
  BatchShare share_of(int batch, MicroBatchCut const& cut) const override;
  /// The packs that the run itself plans: see RunPacks.
  PlannedPacks largest(Config const& config, Mesh const& mesh) const override { return packs_->largest(config, mesh); }

  VocabularySizes const& vocabulary() const { return vocabulary_; }
  /// The datasets; null for random sentences.
  TrainingData const* data() const { return data_ ? &*data_ : nullptr; }
  /// "30,000 sentence pairs", or that they are random.
  std::string describe() const;
  SampleTotals const& totals() const { return totals_; }
  Mixture const& mixture() const { return *mixture_; }
  /// The tokens of a global batch: train.batch_tokens, or all of the data's if these are fewer.
  std::int64_t batch_tokens() const { return batch_tokens_; }
  /// Real tokens of the planned batches, source and target, on average.
  double tokens_of_a_step() const;
  /// The length of a run: "4,000 steps: about 9.1 epochs, 33,000,000 tokens, 1h23m without validation and checkpoints".
  /// If steps were made, the length of what is left: "the 1,000 left of 4,000 steps: about …".
  std::string describe_run(std::int64_t steps, double step_seconds, std::int64_t made = 0) const;
  /// Seconds that it takes to read and pack a token of both sides, measured now.
  double reading_seconds_per_token() const;

 private:
  PlannedData() = default;
  void take_dataset(Config const& config, Task const& task, bool prefixes);
  void take_random_pairs(Config const& config, Task const& task, bool prefixes, std::int64_t vocabulary);

  std::optional<TrainingData> data_;  ///< empty: random pairs
  std::optional<Mixture> mixture_;
  std::optional<RunPacks> packs_;
  VocabularySizes vocabulary_;
  SampleTotals totals_;
  std::int64_t batch_tokens_ = 0;
  double epochs_ = 0;  ///< of the planned batches
  std::vector<GlobalBatch> batches_;
};

}  // namespace heddle
