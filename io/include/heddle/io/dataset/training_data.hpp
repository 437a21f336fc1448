#pragma once

#include <heddle/core/config/config.hpp>
#include <heddle/core/model/model_part.hpp>
#include <heddle/io/dataset/dataset.hpp>
#include <optional>

namespace heddle {

/// The datasets that a configuration names.
struct TrainingData {
  Dataset train;
  std::optional<Dataset> valid;  ///< empty where nothing is validated or data.valid is not set
};

/// Opens data.train, which is set, and data.valid. Throws DataError if they have different vocabularies, and as
/// Dataset::open does.
TrainingData open_training_data(Config const& config);

VocabularySizes vocabulary_sizes(Dataset const& data);

}  // namespace heddle
