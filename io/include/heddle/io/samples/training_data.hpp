#pragma once

#include <heddle/core/config/config.hpp>
#include <heddle/core/model/model_part.hpp>
#include <heddle/io/dataset/dataset.hpp>
#include <heddle/io/samples/mixture.hpp>
#include <optional>
#include <string>
#include <vector>

namespace heddle {

/// The datasets that a configuration names.
struct TrainingData {
  std::vector<Dataset> train;    ///< data.train, or one for each [data.corpus.NAME], in their order; at least one
  std::optional<Dataset> valid;  ///< empty where nothing is validated or data.valid is not set

  Vocabulary const& vocabulary() const { return train.front().vocabulary(); }
  bool has_lines() const { return train.front().has_lines(); }
  /// "data/train.h5", or the names of all.
  std::string name() const;
  /// Identifies the content of all.
  std::string digest() const;
};

/// Opens data.train or the corpora, and data.valid. Throws DataError if they have different vocabularies, or if some
/// corpora have pairs and others lines, and as Dataset::open does.
TrainingData open_training_data(Config const& config);

/// The samples that training draws from `data`, which must outlive them. Throws as samples_for does.
Mixture training_mixture(Config const& config, Task const& task, TrainingData const& data, bool prefixes);

VocabularySizes vocabulary_sizes(Dataset const& data);

}  // namespace heddle
