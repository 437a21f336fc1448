#pragma once

#include <heddle/core/training/planned_packs.hpp>
#include <heddle/io/checkpoint/checkpoint.hpp>
#include <heddle/io/samples/batch_reader.hpp>
#include <heddle/io/samples/training_data.hpp>
#include <map>
#include <string>
#include <vector>

#include "training/trainer_setup.hpp"

namespace heddle {

/// The data of a run: the batches that it is trained on, and the sets that it is validated on.
class RunInput {
 public:
  /// Opens the data. Throws as open_training_data does, DataError for a validation set without a sample that is short
  /// enough, ConfigError where the training data has none that is long enough for the layout. Not collective.
  explicit RunInput(TrainerSetup const& setup);
  RunInput(RunInput const&) = delete;
  RunInput& operator=(RunInput const&) = delete;

  TrainingData const& data() const { return data_; }
  VocabularySizes vocabulary() const { return vocabulary_sizes(data_.train.front()); }
  Mixture const& mixture() const { return reader_.mixture(); }
  SampleTotals const& totals() const { return reader_.totals(); }
  /// The micro-batches of this rank that need the most memory. Reads a few.
  PlannedPacks largest_packs() const;
  /// Warnings about sentences that are too long, where they are a share of the data that a user would miss, and about
  /// tags that the vocabulary lacks.
  std::vector<std::string> warnings() const;

  /// Continues where the checkpoint's run does; with other data than the checkpoint's at the first sample, in the next
  /// epoch. Returns a note about that, or "". Collective over the world.
  std::string resume(Checkpoint const& checkpoint);
  /// The batch of a step; the next step's is read while this one is computed, unless this is the `last` step.
  /// Collective over the world.
  MicroBatchSource const& next(bool last);
  /// The place in the data after that batch, on ranks that read data.
  BatchReader::Progress const& progress() const { return reader_.progress(); }
  /// The passes over each corpus of a mixture; on rank 0.
  std::map<std::string, double> corpus_epochs() const;

 private:
  Config const& config_;
  ParallelState const& parallel_;
  StepTimes& times_;
  ModelDescription model_;
  Task const& task_;
  TrainingData data_;
  BatchReader reader_;
};

}  // namespace heddle
