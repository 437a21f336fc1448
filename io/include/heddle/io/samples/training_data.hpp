#pragma once

#include <heddle/core/config/config.hpp>
#include <heddle/core/model/model_chunk.hpp>
#include <heddle/io/dataset/dataset.hpp>
#include <heddle/io/pairs/text_pair.hpp>
#include <heddle/io/samples/mixture.hpp>
#include <heddle/io/samples/sample_source.hpp>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle {

/// A dataset on which a run is validated.
struct ValidationSet {
  std::string name;  ///< "": data.valid; else its name in data.valid_sets
  Dataset dataset;
  std::string tag = {};                             ///< text before each source
  std::unique_ptr<SampleSource> samples = nullptr;  ///< see make_validation_samples

  /// Its key in the configuration: "data.valid", "data.valid_sets.medical".
  std::string key() const { return name.empty() ? "data.valid" : "data.valid_sets." + name; }
  /// The tokens of a pair's source, after the tag's.
  std::vector<std::int32_t> source(std::int64_t pair) const;
  /// Identifies the content with the tag; of a set without one the dataset's digest.
  std::string digest() const;
};

/// The data of a corpus: a dataset, or text that is tokenized while it is read.
class TrainingSet {
 public:
  explicit TrainingSet(Dataset dataset) : dataset_(std::move(dataset)) {}
  TrainingSet(std::shared_ptr<TextPairs const> text, Vocabulary vocabulary)
      : text_(std::move(text)), vocabulary_(std::move(vocabulary)) {}

  /// Null if it is text.
  Dataset const* dataset() const { return dataset_ ? &*dataset_ : nullptr; }
  /// Null if it is a dataset.
  std::shared_ptr<TextPairs const> const& text() const { return text_; }
  Vocabulary const& vocabulary() const { return dataset_ ? dataset_->vocabulary() : *vocabulary_; }
  bool has_lines() const { return dataset_ && dataset_->has_lines(); }
  std::string_view kind() const { return dataset_ ? dataset_->kind() : "sentence pairs"; }
  SampleFields fields() const { return dataset_ ? dataset_->fields() : text_->fields(); }
  std::string const& name() const { return dataset_ ? dataset_->name() : text_->name(); }
  std::string const& digest() const { return dataset_ ? dataset_->digest() : text_->digest(); }

 private:
  std::optional<Dataset> dataset_;
  std::shared_ptr<TextPairs const> text_;
  std::optional<Vocabulary> vocabulary_;
};

/// The datasets that a configuration names.
struct TrainingData {
  std::vector<TrainingSet> train;  ///< data.train, or one for each [data.corpus.NAME], in their order; at least one
  /// data.valid, then those of data.valid_sets; empty where nothing is validated or data.valid is not set.
  std::vector<ValidationSet> valid;

  Vocabulary const& vocabulary() const { return train.front().vocabulary(); }
  bool has_lines() const { return train.front().has_lines(); }
  /// "data/train.h5", or the names of all.
  std::string name() const;
  /// Identifies the content of all.
  std::string digest() const;
};

/// The files of a run's data.
struct DataFiles {
  std::vector<std::string> datasets;  ///< each once
  std::vector<std::string> texts;
};
DataFiles files_of(Config const& config);

/// Opens data.train or the corpora, and the validation sets, and reads the copies in place of files that have one. Text
/// of a validation set is tokenized at once, into a file that goes with this process. Throws ConfigError for text
/// without a vocabulary, DataError if they have different vocabularies, or if some corpora have pairs and others lines,
/// and as Dataset::open does.
TrainingData open_training_data(Config const& config, DatasetCopies const& copies = {});

/// The samples that training draws from `data`, which must outlive them; each corpus takes the place of `use.corpus`,
/// and the task's fields are added to those of `use`. Throws as samples_for does, and ConfigError where alignments are
/// wanted and no corpus has any.
Mixture training_mixture(Config const& config, Task const& task, TrainingData const& data, SampleUse use);

/// Makes the samples of the validation sets, which refer to their datasets. Throws as samples_for does.
void make_validation_samples(Config const& config, Task const& task, bool prefixes, TrainingData& data);
/// Pointers to the samples of the validation sets.
std::vector<SampleSource const*> validation_samples(TrainingData const& data);

VocabularySizes vocabulary_sizes(Vocabulary const& vocabulary);

}  // namespace heddle
