#include "planned_data.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/base/seconds.hpp>
#include <heddle/io/dataset/dataset.hpp>
#include <heddle/io/samples/synthetic_batch.hpp>
#include <heddle/io/samples/training_data.hpp>
#include <limits>

#include "run/configuration/config_check.hpp"

namespace heddle {

std::unique_ptr<PlannedData> PlannedData::open(Config const& config, Registries const& registries,
                                               std::int64_t vocabulary) {
  Task const& task = registries.tasks.of(config);
  bool const prefixes = describe_model(config.model, registries.layers).needs_prefixes();
  std::unique_ptr<PlannedData> data(new PlannedData());
  if (!config.data.has_training()) {
    data->take_random_pairs(config, task, prefixes, vocabulary);
  } else {
    data->take_dataset(config, task, prefixes);
  }
  BatchPlanner planner(*data->mixture_, BatchPlanner::Limits::of(config), config.train.seed);
  data->totals_ = planner.totals();
  data->batch_tokens_ = std::min(config.train.batch_tokens, data->totals_.tokens);
  data->packs_.emplace(
      RunPacks::Setup{.config = config,
                      .training = *data->mixture_,
                      .validation = data->data_ ? validation_samples(*data->data_) : std::vector<SampleSource const*>(),
                      .prefixes = prefixes || task.pairs(prefixes) == PairForm::joined,
                      .sequences = data->data_ && data->data_->has_lines(),
                      .listed = data->data_.has_value()});
  std::int64_t const batches =
      std::min<std::int64_t>(data->data_ ? planned_batches : random_batches, config.train.steps);
  for (std::int64_t batch = 0; batch < batches; ++batch) {
    data->batches_.push_back(planner.next());
  }
  data->epochs_ = planner.epochs();
  return data;
}

void PlannedData::take_dataset(Config const& config, Task const& task, bool prefixes) {
  require_read_again(config, "a plan");
  data_ = open_training_data(config);
  mixture_ = training_mixture(config, task, *data_, {.prefixes = prefixes});
  make_validation_samples(config, task, prefixes, *data_);
  vocabulary_ = vocabulary_sizes(data_->vocabulary());
}

void PlannedData::take_random_pairs(Config const& config, Task const& task, bool prefixes, std::int64_t vocabulary) {
  if (auto const form = task.pairs(prefixes); !form || form == PairForm::joined || prefixes) {
    throw ConfigError(
        "a plan for a task that is trained on text, or for a model with prefixes, needs data: set data.train");
  }
  vocabulary_ = {vocabulary, vocabulary, true};
  std::int64_t const longest = std::min<std::int64_t>(50, config.model.max_length);
  constexpr std::int64_t max_tokens = std::int64_t{1} << 25;  // a GiB of samples
  if (config.train.batch_tokens > max_tokens) {
    throw ConfigError(
        "{} = {}: a plan without data makes random batches of at most {} tokens; set data.train for larger ones",
        config.train.places.of("batch_tokens"), config.train.batch_tokens, readable_count(max_tokens));
  }
  SyntheticBatch const pairs({.vocabulary = vocabulary,
                              .tokens = (random_batches + 1) * config.train.batch_tokens + longest,
                              .micro_batches = 1,
                              .shortest = std::min<std::int64_t>(10, longest),
                              .longest = longest});
  mixture_ = Mixture({{.samples = std::make_shared<MemorySamples>(pairs.pairs(0), SyntheticBatch::special_ids)}});
}

std::unique_ptr<MicroBatchSource> PlannedData::cut(int batch, MicroBatchCut const& cut) const {
  return std::make_unique<SampledMicroBatches>(*mixture_, batches_[static_cast<std::size_t>(batch)], cut);
}

BatchShare PlannedData::share_of(int batch, MicroBatchCut const& cut) const {
  SampledMicroBatches const source(*mixture_, batches_.at(static_cast<std::size_t>(batch)), cut);
  BatchShare share{source.count()};
  for (std::int64_t index = 0; index < share.micro_batches; ++index) {
    share.tokens += source.size(index).whole;
  }
  return share;
}

std::string PlannedData::describe() const {
  return data_ ? mixture_->describe()
               : fmt::format("random sentence pairs, {} pieces", readable_count(vocabulary_.target));
}

double PlannedData::tokens_of_a_step() const {
  double tokens = 0;
  for (GlobalBatch const& batch : batches_) {
    tokens += static_cast<double>(batch.tokens.all) / static_cast<double>(batches_.size());
  }
  return tokens;
}

std::string PlannedData::describe_run(std::int64_t steps, double step_seconds, std::int64_t made) const {
  std::string const length =
      made > 0 ? fmt::format("the {} left of {}", readable_count(steps - made), counted(steps, "step"))
               : counted(steps, "step");
  auto const count = static_cast<double>(steps - made);
  double const epochs = count * epochs_ / static_cast<double>(batches_.size());
  return fmt::format("{}: about {}{} tokens, {} without validation and checkpoints\n", length,
                     data_ ? readable_decimal(epochs, epochs < 10 ? 1 : 0) + " epochs, " : "",
                     readable_count(count * tokens_of_a_step()), readable_duration(count * step_seconds));
}

double PlannedData::reading_seconds_per_token() const {
  constexpr std::int64_t max_micro_batches = 8;
  constexpr int repetitions = 3;  // the first reads from a disk
  double min = std::numeric_limits<double>::infinity();
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    double tokens = 0;
    auto const begin = SteadyClock::now();
    auto const micro_batches = cut(0, {.max_tokens = std::min<std::int64_t>(4096, batch_tokens_)});
    for (std::int64_t index = 0; index < std::min(micro_batches->count(), max_micro_batches); ++index) {
      Pack const pack = micro_batches->micro_batch(index);
      tokens += static_cast<double>(pack.source_rows.tokens + pack.target_rows.tokens);
    }
    min = std::min(min, seconds_since(begin) / std::max(tokens, 1.0));
  }
  return min;
}

}  // namespace heddle
