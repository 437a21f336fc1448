#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/io/files/sha256.hpp>
#include <heddle/io/samples/training_data.hpp>
#include <iterator>
#include <map>
#include <utility>

namespace heddle {

namespace {

MixtureStage stage_of(DataStage const& stage, std::vector<Corpus> const& corpora) {
  MixtureStage result{.title = stage.title, .epochs = stage.epochs, .steps = stage.steps};
  for (Corpus const& corpus : corpora) {
    if (corpus.name == stage.corpus) {
      result.corpus = result.weights.size();
    }
    auto const weight = stage.weights.find(corpus.name);
    result.weights.push_back(weight == stage.weights.end() ? 0 : weight->second);
  }
  return result;
}

Dataset open_files(std::vector<std::string> files) {
  for (std::string& file : files) {
    file = dataset_in(file, "train.h5");
  }
  return Dataset::open(files);
}

/// Throws DataError if two datasets of a run do not have one vocabulary.
void require_same_vocabulary(Dataset const& data, Dataset const& other) {
  if (other.vocabulary_digest() != data.vocabulary_digest()) {
    throw DataError(
        "{} and {} were prepared with different vocabularies; prepare one of them again with that of the "
        "other, or of the run that they are for: heddle prepare --vocab-model DATASET or RUN",
        data.name(), other.name());
  }
}

}  // namespace

std::vector<std::int32_t> ValidationSet::source(std::int64_t pair) const {
  Sample sample{0, dataset.source(pair), {}};
  if (!tag.empty()) {
    put_tag(dataset, dataset.source_tokenizer().encode(tag), sample);
  }
  return std::move(sample.source.tokens);
}

std::string ValidationSet::digest() const {
  return tag.empty() ? dataset.digest() : sha256(dataset.digest() + tag);
}

std::string TrainingData::name() const {
  std::vector<std::string> names;
  for (Dataset const& data : train) {
    names.push_back(data.name());
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string TrainingData::digest() const {
  if (train.size() == 1) {
    return train.front().digest();
  }
  std::string digests;
  for (Dataset const& data : train) {
    digests += data.digest();
  }
  return sha256(digests);
}

TrainingData open_training_data(Config const& config) {
  TrainingData data;
  if (config.data.corpora.empty()) {
    data.train.push_back(open_files(config.data.train));
  }
  for (CorpusConfig const& corpus : config.data.corpora) {
    data.train.push_back(open_files(corpus.train));
    Dataset const& first = data.train.front();
    Dataset const& added = data.train.back();
    require_same_vocabulary(first, added);
    if (added.has_lines() != first.has_lines()) {
      throw DataError(
          "{} has {}, and {} has {}: corpora that are mixed are all of sentence pairs, or all "
          "of lines",
          first.name(), first.kind(), added.name(), added.kind());
    }
  }
  if (config.train.validate_every > 0 && !config.data.valid.empty()) {
    std::map<std::string, std::string> paths = config.data.valid_sets;
    paths[""] = config.data.valid;  // the first in order
    for (auto const& [name, path] : paths) {
      CorpusConfig const corpus = config.data.validation_corpus(name).value_or(CorpusConfig());
      data.valid.push_back({name, Dataset::open(dataset_in(path, "valid.h5")), corpus.tag});
      require_same_vocabulary(data.train.front(), data.valid.back().dataset);
    }
  }
  return data;
}

Mixture training_mixture(Config const& config, Task const& task, TrainingData const& data, SampleUse use) {
  if (use.fields.contains(SampleField::alignment) && std::ranges::none_of(data.train, [](Dataset const& each) {
        return each.fields().contains(SampleField::alignment);
      })) {
    throw ConfigError(
        "guided_alignment_weight is set for a layer, but {} has no word alignments; `heddle prepare "
        "--alignments FILE` takes them",
        data.name());
  }
  use.fields.merge(task.fields());
  std::vector<Corpus> corpora;
  for (std::size_t number = 0; number < data.train.size(); ++number) {
    use.corpus = config.data.corpora.empty() ? CorpusConfig() : config.data.corpora[number];
    corpora.push_back({.samples = samples_for(config, task, data.train[number], use),
                       .name = use.corpus.name,
                       .weight = use.corpus.weight});
  }
  if (double const temperature = config.data.temperature; temperature > 0) {
    for (Corpus& corpus : corpora) {
      auto const samples = static_cast<double>(corpus.samples->totals(0, config.model.max_length).usable);
      corpus.weight *= std::pow(samples, 1 / temperature);
    }
  }
  std::vector<MixtureStage> stages;
  std::ranges::transform(config.data.stages, std::back_inserter(stages),
                         [&](DataStage const& stage) { return stage_of(stage, corpora); });
  return Mixture(std::move(corpora), std::move(stages));
}

void make_validation_samples(Config const& config, Task const& task, bool prefixes, TrainingData& data) {
  for (ValidationSet& set : data.valid) {
    CorpusConfig const corpus = config.data.validation_corpus(set.name).value_or(CorpusConfig());
    set.samples = samples_for(config, task, set.dataset, {.training = false, .prefixes = prefixes, .corpus = corpus});
  }
}

std::vector<SampleSource const*> validation_samples(TrainingData const& data) {
  std::vector<SampleSource const*> samples;
  for (ValidationSet const& set : data.valid) {
    samples.push_back(set.samples.get());
  }
  return samples;
}

VocabularySizes vocabulary_sizes(Dataset const& data) {
  return {data.source_tokenizer().size(), data.target_tokenizer().size(), data.joint()};
}

}  // namespace heddle
