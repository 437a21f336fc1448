#pragma once

#include <functional>
#include <heddle/core/training/planned_packs.hpp>
#include <heddle/io/checkpoint/checkpoint.hpp>
#include <heddle/io/dataset/staged_data.hpp>
#include <heddle/io/samples/batch_reader.hpp>
#include <heddle/io/samples/training_data.hpp>
#include <map>
#include <string>
#include <vector>

#include "run/metrics/training_log.hpp"
#include "training/trainer_setup.hpp"

namespace heddle {

/// The data of a run: the batches that it is trained on, and the sets that it is validated on.
class RunInput {
 public:
  /// Copies datasets, if the options say where, and opens the data. Throws as open_training_data does, DataError for a
  /// validation set without a sample that is short enough, ConfigError where the training data has none that is long
  /// enough for the layout. Collective over the world.
  explicit RunInput(TrainerSetup const& setup);
  /// Does not wait for the rest of a stream.
  ~RunInput();
  RunInput(RunInput const&) = delete;
  RunInput& operator=(RunInput const&) = delete;

  TrainingData const& data() const { return data_; }
  VocabularySizes vocabulary() const { return vocabulary_sizes(data_.vocabulary()); }
  Mixture const& mixture() const { return reader_.mixture(); }
  SampleTotals const& totals() const { return reader_.totals(); }
  /// The micro-batches of this rank that need the most memory. Reads a few.
  PlannedPacks largest_packs() const;
  /// The line about datasets that are read from copies; "" without.
  std::string const& staging() const { return staged_.summary; }
  /// Warnings about files that were not copied, about sentences that are too long, where they are a share of the data
  /// that a user would miss, and about tags that the vocabulary lacks.
  std::vector<std::string> warnings() const;

  /// Continues where the checkpoint's run does; in a corpus with other data than then at the first sample, in the next
  /// epoch. Returns notes about them, or "". Collective over the world.
  std::string resume(Checkpoint const& checkpoint);
  /// Waits until a stream has the next batch; false where stop(), which rank 0 asks meanwhile, became true before. True
  /// at once for data that do not pause. Collective over the world.
  bool await_next(std::function<bool()> const& stop);
  /// The batch of a step; the next step's is read while this one is computed, unless this is the `last` step.
  /// Collective over the world.
  MicroBatchSource const& next(bool last);
  /// The place in the data after that batch, with the digests of the corpora, on ranks that read data.
  MixtureCursor cursor() const;
  /// The same without digests.
  BatchReader::Progress const& progress() const { return reader_.progress(); }
  /// The number of the next batch's stage, from 0; the same on all ranks.
  std::int64_t stage() const { return reader_.stage(); }
  /// "2 of 3, clean first"; "" without stages, and after the last one.
  std::string stage_name() const;
  /// Whether the stage ends because of validations that were not better.
  bool stalled(TrainingState const& state) const;
  /// Starts the next stage. Collective over the world.
  void end_stage() { reader_.end_stage(); }
  /// Whether the data, as the configuration asks for them, have been read; the same on all ranks.
  bool exhausted() const { return reader_.exhausted(); }
  /// The losses of each corpus in the last batch, of which these are the sums; on rank 0, empty for one corpus.
  std::map<std::string, GroupLoss> corpus_losses(std::vector<double> const& sums) const;
  /// The tags of the corpora that have one.
  std::map<std::string, std::string> corpus_tags() const;
  /// The passes over each corpus of a mixture; on rank 0.
  std::map<std::string, double> corpus_epochs() const;

 private:
  Config const& config_;
  ParallelState const& parallel_;
  StepTimes& times_;
  ModelDescription model_;
  Task const& task_;
  StagedData staged_;
  TrainingData data_;
  BatchReader reader_;
};

}  // namespace heddle
