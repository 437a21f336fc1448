#include "training/run_input.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/model/layout.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/io/samples/batches.hpp>
#include <heddle/io/samples/run_packs.hpp>
#include <iterator>

#include "run/checkpoints/checkpoint.hpp"
#include "run/report/run_text.hpp"

namespace heddle {

namespace {

/// Copies the datasets where --stage-data asks for it; rank 0's options hold.
StagedData stage_data(TrainerSetup const& setup) {
  Communicator const& world = setup.parallel.world;
  std::string const directory = broadcast_text(world, setup.options.stage_data.value_or(""));
  if (directory.empty()) {
    return {};
  }
  DataFiles const files = files_of(setup.config);
  StagedData staged = stage_datasets(files.datasets, directory, world, [&] { setup.watch.heartbeat(); });
  for (std::string const& text : files.texts) {
    staged.warnings.push_back(fmt::format("{} is text, which --stage-data does not copy; it is read in place", text));
  }
  return staged;
}

TrainingData open_data(Config const& config, Task const& task, bool prefixes, DatasetCopies const& copies) {
  TrainingData data = open_training_data(config, copies);
  make_validation_samples(config, task, prefixes, data);
  for (ValidationSet const& set : data.valid) {
    if (all_samples(*set.samples, config.model.max_length).samples.empty()) {
      throw DataError(
          "{}: every sample is longer than model.max_length = {}: there is nothing to validate "
          "on; set train.validate_every = 0 or another {}",
          set.dataset.name(), config.model.max_length, set.key());
    }
  }
  return data;
}

}  // namespace

RunInput::RunInput(TrainerSetup const& setup)
    : config_(setup.config),
      parallel_(setup.parallel),
      times_(setup.times),
      model_(describe_model(config_.model, setup.registries.layers)),
      task_(setup.registries.tasks.of(config_)),
      staged_(stage_data(setup)),
      data_(open_data(config_, task_, model_.needs_prefixes(), staged_.copies)),
      // Ranks with one data coordinate train on the same samples. Only rank 0 has the standard input.
      reader_(BatchPlanner(training_mixture(config_, task_, data_,
                                            {.prefixes = model_.needs_prefixes(), .fields = model_.fields()}),
                           BatchPlanner::Limits::of(config_), config_.train.seed),
              micro_batch_cut(config_.train, parallel_),
              is_stream(config_.data) ? parallel_.world
                                      : parallel_.group(parallel_.mesh.shape().axes_except(MeshAxis::data)),
              is_stream(config_.data) ? BatchReader::Group::of_all : BatchReader::Group::of_a_data_rank) {
  require_long_enough(config_, model_, parallel_.mesh, parallel_.world.size(), totals().longest);
}

RunInput::~RunInput() {
  for (TrainingSet const& data : data_.train) {
    if (data.text() != nullptr) {
      data.text()->interrupt();
    }
  }
}

PlannedPacks RunInput::largest_packs() const {
  bool const prefixes = model_.needs_prefixes();
  RunPacks const packs({.config = config_,
                        .training = mixture(),
                        .validation = validation_samples(data_),
                        .prefixes = prefixes || task_.pairs(prefixes) == PairForm::joined,
                        .sequences = data_.has_lines()});
  return packs.largest(config_, parallel_.mesh);
}

std::vector<std::string> RunInput::warnings() const {
  std::int64_t const longest = config_.model.max_length;
  std::vector<std::string> warnings = staged_.warnings;
  std::ranges::move(warnings_about(mixture(), longest), std::back_inserter(warnings));
  for (ValidationSet const& set : data_.valid) {
    std::string const warning = set.samples->warning();
    if (!set.tag.empty() && std::ranges::count(warnings, warning) == 0) {  // it is said once of a corpus's own tag
      warnings.push_back(warning);
    }
    warnings.push_back(left_out_warning(set.key(), set.samples->totals(0, longest), longest));
  }
  return warnings;
}

std::string RunInput::resume(Checkpoint const& checkpoint) {
  MixtureCursor cursor = data_cursor(checkpoint.contents(), checkpoint.directory().string());
  std::string note;
  for (SampleCursor& own : cursor.corpora) {
    if (has_new_data(checkpoint, config_, data_, own)) {
      ++own.epoch;
      own.position = 0;
      note += fmt::format("{}note: {} has new data: training starts with its first sample, epoch {}",
                          note.empty() ? "" : "\n", corpus_key(own.corpus), own.epoch);
    }
  }
  reader_.seek(cursor);
  return note;
}

MixtureCursor RunInput::cursor() const {
  MixtureCursor cursor = progress().cursor;
  for (std::size_t corpus = 0; corpus < cursor.corpora.size(); ++corpus) {
    cursor.corpora[corpus].digest = data_.train[corpus].digest();
  }
  return cursor;
}

std::string RunInput::stage_name() const {
  std::vector<MixtureStage> const& stages = mixture().stages();
  auto const number = static_cast<std::size_t>(stage());
  return number >= stages.size() ? ""
                                 : fmt::format("{} of {}{}{}", number + 1, stages.size(),
                                               stages[number].title.empty() ? "" : ", ", stages[number].title);
}

bool RunInput::stalled(TrainingState const& state) const {
  auto const number = static_cast<std::size_t>(stage());
  std::int64_t const limit = number < config_.data.stages.size() ? config_.data.stages[number].stalled : 0;
  return limit > 0 && state.validations_without_improvement >= limit;
}

bool RunInput::await_next(std::function<bool()> const& stop) {
  if (!is_stream(config_.data)) {
    return true;
  }
  WorkScope const timed(&times_, {WorkKind::data, "waiting for the stream"});
  return reader_.await_next(stop);
}

MicroBatchSource const& RunInput::next(bool last) {
  WorkScope const timed(&times_, {WorkKind::data, "reading"});
  MicroBatchSource const& batch = reader_.next();
  if (!last && !exhausted()) {
    reader_.read_ahead();
  }
  return batch;
}

std::map<std::string, GroupLoss> RunInput::corpus_losses(std::vector<double> const& sums) const {
  std::map<std::string, GroupLoss> losses;
  std::vector<Corpus> const& corpora = mixture().corpora();
  for (std::size_t corpus = 0; parallel_.world.rank() == 0 && corpus < sums.size(); ++corpus) {
    if (std::int64_t const tokens = progress().corpus_tokens[corpus]; tokens > 0) {
      losses[corpora[corpus].name] = {sums[corpus], tokens};
    }
  }
  return losses;
}

std::map<std::string, std::string> RunInput::corpus_tags() const {
  std::map<std::string, std::string> tags;
  for (CorpusConfig const& corpus : config_.data.corpora) {
    if (!corpus.tag.empty()) {
      tags[corpus.name] = corpus.tag;
    }
  }
  return tags;
}

std::map<std::string, double> RunInput::corpus_epochs() const {
  std::map<std::string, double> epochs;
  std::vector<Corpus> const& corpora = mixture().corpora();
  if (parallel_.world.rank() == 0 && corpora.size() > 1) {
    std::ranges::transform(corpora, progress().corpus_epochs, std::inserter(epochs, epochs.end()),
                           [](Corpus const& corpus, double value) { return std::pair(corpus.name, value); });
  }
  return epochs;
}

}  // namespace heddle
