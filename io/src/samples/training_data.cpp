#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/paths.hpp>
#include <heddle/io/files/sha256.hpp>
#include <heddle/io/pairs/modifiers.hpp>
#include <heddle/io/pairs/pair_files.hpp>
#include <heddle/io/samples/pair_samples.hpp>
#include <heddle/io/samples/training_data.hpp>
#include <iterator>
#include <map>
#include <utility>

#include "files/pending_file.hpp"
#include "tokenizers/tokenizer_model.hpp"

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

std::vector<std::string> training_files(CorpusConfig const& corpus) {
  std::vector<std::string> files;
  std::ranges::transform(corpus.train, std::back_inserter(files),
                         [](std::string const& file) { return dataset_in(file, "train.h5"); });
  return files;
}

Dataset open_validation(std::string const& path, DatasetCopies const& copies) {
  return Dataset::open(std::array{dataset_in(path, "valid.h5")}, Dataset::default_cache_bytes, copies);
}

bool is_text(CorpusConfig const& corpus) {
  return !corpus.text.empty() || (!corpus.train.empty() && is_text_file(corpus.train.front()));
}

Tokenizer open_model(std::string const& path, std::string const& place) {
  FileText const file = read_file_text(path, max_model_bytes);
  if (!file.problem.empty()) {
    throw ConfigError("{}: {}", place, file.problem);
  }
  try {
    return Tokenizer::from_model(file.text);
  } catch (DataError const& error) {
    throw DataError("{}: {}", path, error.what());
  }
}

/// The vocabulary of a file or of two, or of what `heddle prepare` writes: a dataset, or its directory.
Vocabulary open_vocabulary(std::vector<std::string> const& paths, std::string const& place) {
  if (paths.size() > 2) {
    throw ConfigError("{} names {} files; expected one, or those of source and target", place, paths.size());
  }
  if (paths.size() == 2) {
    return {open_model(paths[0], place), open_model(paths[1], place)};
  }
  std::filesystem::path const path = paths.front();
  std::error_code ignored;
  if (path.extension() == ".h5") {
    return Dataset::open(path).vocabulary();
  }
  if (std::filesystem::exists(path / "vocab.source.model", ignored)) {
    return {open_model(path / "vocab.source.model", place), open_model(path / "vocab.target.model", place)};
  }
  bool const directory = std::filesystem::is_directory(path, ignored);
  Tokenizer const joint = open_model(directory ? path / "vocab.model" : path, place);
  return {joint, joint};
}

/// The vocabulary of text: data.vocabulary, or that of the first dataset among the corpora and the validation sets.
Vocabulary vocabulary_of_text(DataConfig const& data, std::vector<CorpusConfig> const& corpora) {
  if (!data.vocabulary.empty()) {
    return open_vocabulary(data.vocabulary, data.places.of("vocabulary"));
  }
  for (CorpusConfig const& corpus : corpora) {
    if (!is_text(corpus)) {
      return Dataset::open(training_files(corpus)).vocabulary();
    }
  }
  if (!data.valid.empty() && !is_text_file(data.valid)) {
    return Dataset::open(dataset_in(data.valid, "valid.h5")).vocabulary();
  }
  throw ConfigError(
      "data.vocabulary is not set, and {} is text; name a file that `heddle prepare --only-vocab` writes, as in "
      "vocabulary = \"data/vocab.model\"",
      corpora.front().text.empty() ? corpora.front().train.front() : corpora.front().text.source.front());
}

/// A validation set of text, in a file that has no name once it is open.
Dataset encode_text(std::string const& path, Vocabulary const& vocabulary) {
  auto const pairs = open_tsv({path});
  std::filesystem::path const file = std::filesystem::temp_directory_path() / private_name("heddle-valid.");
  DatasetWriter writer(file, vocabulary);
  constexpr std::int64_t block = 8192;
  for (std::int64_t begin = 0; begin < pairs->size(); begin += block) {
    for (TextPair const& pair : pairs->read({begin, std::min(begin + block, pairs->size())})) {
      auto const source = vocabulary.source.encode(pair.source);
      auto const target = vocabulary.target.encode(pair.target);
      if (!source.empty() && !target.empty()) {
        writer.add(source, target);
      }
    }
  }
  if (writer.size() == 0) {
    throw DataError("{}: no line has text on both sides", path);
  }
  writer.commit();
  Dataset dataset = Dataset::open(file);
  std::filesystem::remove(file);
  dataset.set_name(path);
  return dataset;
}

/// The validation sets by their names, data.valid first; none for a run that does not validate.
std::map<std::string, std::string> validation_paths(Config const& config) {
  if (config.train.validate_every == 0 || config.data.valid.empty()) {
    return {};
  }
  std::map<std::string, std::string> paths = config.data.valid_sets;
  paths[""] = config.data.valid;  // the first in order
  return paths;
}

TrainingSet open_corpus(CorpusConfig const& corpus, std::optional<Vocabulary> const& of_text,
                        DatasetCopies const& copies) {
  if (!is_text(corpus)) {
    return TrainingSet(Dataset::open(training_files(corpus), Dataset::default_cache_bytes, copies));
  }
  if (!of_text->source.form().empty() || !of_text->target.form().empty()) {
    throw ConfigError(
        "{}: text cannot be tokenized while it is read with a vocabulary that has tokens for languages or puts tokens "
        "around texts; `heddle prepare` makes a dataset of it",
        corpus.places.of(corpus.text.empty() ? "train" : "source"));
  }
  return {corpus.text.empty() ? open_tsv(corpus.train) : open_parallel(corpus.text), *of_text};
}

/// Throws DataError if two datasets of a run do not have one vocabulary.
template <class Data>
void require_same_vocabulary(TrainingSet const& data, Data const& other) {
  if (other.vocabulary().digest() != data.vocabulary().digest()) {
    throw DataError(
        "{} and {} were prepared with different vocabularies; prepare one of them again with that of the "
        "other, or of the run that they are for: heddle prepare --vocab-model DATASET or RUN",
        data.name(), other.name());
  }
}

/// The samples of a corpus. Text, and datasets with modifiers, are tokenized while they are read.
std::unique_ptr<SampleSource> samples_of(Config const& config, Task const& task, TrainingSet const& data,
                                         SampleUse const& use) {
  Modifiers::Text const text{.name = data.name(), .fields = data.fields(), .vocabulary = data.vocabulary()};
  Modifiers modifiers(use.corpus.modifiers, text);
  Dataset const* const dataset = data.dataset();
  if (dataset != nullptr && modifiers.empty()) {
    return samples_for(config, task, *dataset, use);
  }
  std::shared_ptr<TextPairs const> pairs = data.text();
  std::string const where = dataset == nullptr ? data.name() : use.corpus.modifiers.begin()->second.origin;
  if (dataset != nullptr) {
    if (dataset->has_lines() || !data.vocabulary().source.form().empty() || !data.vocabulary().target.form().empty()) {
      throw ConfigError("{}: modifiers change sentence pairs without tokens for languages, and {} has {}", where,
                        data.name(), dataset->has_lines() ? "lines of text" : "such tokens");
    }
    pairs = dataset_pairs(*dataset, use.fields);
  }
  return samples_for_text(config, task, std::move(pairs), data.vocabulary(), std::move(modifiers), use, where);
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
  for (TrainingSet const& data : train) {
    names.push_back(data.name());
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string TrainingData::digest() const {
  if (train.size() == 1) {
    return train.front().digest();
  }
  std::string digests;
  for (TrainingSet const& data : train) {
    digests += data.digest();
  }
  return sha256(digests);
}

DataFiles files_of(Config const& config) {
  DataFiles files;
  auto const add = [](std::vector<std::string>& to, std::string const& file) {
    if (std::ranges::find(to, file) == to.end()) {
      to.push_back(file);
    }
  };
  for (CorpusConfig const& corpus : config.data.training()) {
    auto& to = is_text(corpus) ? files.texts : files.datasets;
    std::vector<std::string> const given = is_text(corpus) ? corpus.train : training_files(corpus);
    std::ranges::for_each(given, [&](std::string const& file) { add(to, file); });
    std::ranges::for_each(corpus.text.source, [&](std::string const& file) { add(to, file); });
    std::ranges::for_each(corpus.text.target, [&](std::string const& file) { add(to, file); });
  }
  for (auto const& [name, path] : validation_paths(config)) {
    if (is_text_file(path)) {
      add(files.texts, path);
    } else {
      add(files.datasets, dataset_in(path, "valid.h5"));
    }
  }
  return files;
}

TrainingData open_training_data(Config const& config, DatasetCopies const& copies) {
  std::vector<CorpusConfig> const corpora = config.data.training();
  std::map<std::string, std::string> const paths = validation_paths(config);
  std::optional<Vocabulary> of_text;
  if (std::ranges::any_of(corpora, is_text) ||
      std::ranges::any_of(paths, [](auto const& path) { return is_text_file(path.second); })) {
    of_text = vocabulary_of_text(config.data, corpora);
  }
  TrainingData data;
  for (CorpusConfig const& corpus : corpora) {
    data.train.push_back(open_corpus(corpus, of_text, copies));
    TrainingSet const& first = data.train.front();
    TrainingSet const& added = data.train.back();
    require_same_vocabulary(first, added);
    if (added.has_lines() != first.has_lines()) {
      throw DataError(
          "{} has {}, and {} has {}: corpora that are mixed are all of sentence pairs, or all "
          "of lines",
          first.name(), first.kind(), added.name(), added.kind());
    }
  }
  for (auto const& [name, path] : paths) {
    CorpusConfig const corpus = config.data.validation_corpus(name).value_or(CorpusConfig());
    data.valid.push_back(
        {name, is_text_file(path) ? encode_text(path, *of_text) : open_validation(path, copies), corpus.tag});
    require_same_vocabulary(data.train.front(), data.valid.back().dataset);
  }
  return data;
}

Mixture training_mixture(Config const& config, Task const& task, TrainingData const& data, SampleUse use) {
  if (use.fields.contains(SampleField::alignment) && std::ranges::none_of(data.train, [](TrainingSet const& each) {
        return each.fields().contains(SampleField::alignment);
      })) {
    throw ConfigError(
        "guided_alignment_weight is set for a layer, but {} has no word alignments; `heddle prepare "
        "--alignments FILE` takes them, and the third column of a TSV file",
        data.name());
  }
  use.fields.merge(task.fields());
  std::vector<Corpus> corpora;
  std::vector<CorpusConfig> const configured = config.data.training();
  for (std::size_t number = 0; number < data.train.size(); ++number) {
    use.corpus = configured[number];
    corpora.push_back({.samples = samples_of(config, task, data.train[number], use),
                       .name = use.corpus.name,
                       .weight = use.corpus.weight});
  }
  if (double const temperature = config.data.temperature; temperature > 0) {
    std::vector<double> samples;
    std::ranges::transform(corpora, std::back_inserter(samples), [&](Corpus const& corpus) {
      return static_cast<double>(corpus.samples->totals(0, config.model.max_length).usable);
    });
    double const largest = std::max(1.0, *std::ranges::max_element(samples));
    for (std::size_t corpus = 0; corpus < corpora.size(); ++corpus) {
      // A low temperature would leave nothing of a small corpus.
      corpora[corpus].weight *= std::max(std::pow(samples[corpus] / largest, 1 / temperature), 1e-9);
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

VocabularySizes vocabulary_sizes(Vocabulary const& vocabulary) {
  return {vocabulary.source.size(), vocabulary.target.size(), vocabulary.joint()};
}

}  // namespace heddle
