#include <fmt/format.h>

#include <heddle/core/base/error.hpp>
#include <heddle/io/dataset/training_data.hpp>
#include <string>
#include <vector>

namespace heddle {

TrainingData open_training_data(Config const& config) {
  std::vector<std::string> files;
  for (std::string const& file : config.data.train) {
    files.push_back(dataset_in(file, "train.h5"));
  }
  TrainingData data{Dataset::open(files), std::nullopt};
  if (config.train.validate_every > 0 && !config.data.valid.empty()) {
    data.valid.emplace(Dataset::open(dataset_in(config.data.valid, "valid.h5")));
    if (data.valid->vocabulary_digest() != data.train.vocabulary_digest()) {
      throw DataError(fmt::format("{} and {} were prepared with different vocabularies; prepare them together",
                                  data.train.name(), config.data.valid));
    }
  }
  return data;
}

VocabularySizes vocabulary_sizes(Dataset const& data) {
  return {data.source_tokenizer().size(), data.target_tokenizer().size(), data.joint()};
}

}  // namespace heddle
