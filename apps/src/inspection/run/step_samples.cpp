#include "inspection/run/step_samples.hpp"

#include <fmt/format.h>

#include <heddle/core/base/readable.hpp>
#include <heddle/core/tensor/runtime.hpp>
#include <heddle/io/checkpoint/store.hpp>
#include <heddle/io/samples/batches.hpp>
#include <heddle/io/samples/training_data.hpp>

#include "run/checkpoints/checkpoint.hpp"

namespace heddle {

namespace {

/// The place in the data after the newest checkpoint before a step.
struct Start {
  std::int64_t step = 0;  ///< steps done
  std::optional<MixtureCursor> cursor = {};
};

Start start_before(RunView const& run, std::int64_t step) {
  Start start;
  std::filesystem::path newest;
  for (CheckpointEntry const& entry : list_checkpoints(run.path, CheckpointStore::Check::sizes)) {
    if (entry.step < step && entry.step > start.step) {
      start.step = entry.step;
      newest = entry.directory;
    }
  }
  if (start.step > 0) {
    RunView const before = open_run(newest.string(), "last", {});
    start.cursor = data_cursor(before.checkpoint->contents(), newest.string());
  }
  return start;
}

/// The text and the tokens of a side; "" of one that the sample does not have.
std::string describe_side(char const* name, SideFields const& side, Tokenizer const& tokenizer) {
  if (!side.used) {
    return "";
  }
  return fmt::format("  {}: {}\n  ids: {}\n", name, tokenizer.decode(side.id), fmt::join(side.id, " "));
}

std::string describe_sample(Mixture const& mixture, GlobalBatch const& batch, std::size_t number) {
  SampleId const& id = batch.samples[number];
  std::string const& name = mixture.corpora()[static_cast<std::size_t>(id.corpus)].name;
  return fmt::format("sample {}: {}{}epoch {}, place {}, {} and {} tokens\n", number, name, name.empty() ? "" : ", ",
                     id.epoch, id.index, batch.costs[number].source, batch.costs[number].target);
}

}  // namespace

std::string describe_samples(RunView const& run, PluginTrust const& trust, WantedSamples const& wanted) {
  Config const config = stored_config(*run.checkpoint);
  if (wanted.step < 1 || wanted.step > config.train.steps) {
    throw UsageError("inspect: step {}: the run has steps 1 to {}", wanted.step, readable_count(config.train.steps));
  }
  Runtime runtime;
  Registries registries;
  PluginsConfig const plugins = trusted_plugins(config.plugins, trust, run.checkpoint->directory().string());
  register_everything({.plugins = read_plugins(plugins)}, registries, runtime.execution());
  ModelDescription const model = describe_model(config.model, registries.layers);
  TrainingData const data = open_training_data(config);
  BatchPlanner planner(training_mixture(config, registries.tasks.of(config), data,
                                        {.prefixes = model.needs_prefixes(), .fields = model.fields()}),
                       BatchPlanner::Limits::of(config), config.train.seed);
  Start const start = start_before(run, wanted.step);
  if (start.cursor) {
    planner.seek(*start.cursor);
  }
  GlobalBatch batch;
  for (std::int64_t step = start.step; step < wanted.step; ++step) {
    batch = planner.next();
  }
  std::string text = fmt::format("step {}: {}, {} tokens, planned after step {}\n", readable_count(wanted.step),
                                 counted(std::ssize(batch.samples), "sample"), readable_count(batch.tokens.all),
                                 readable_count(start.step));
  if (!wanted.number) {
    for (std::size_t number = 0; number < batch.samples.size(); ++number) {
      text += describe_sample(planner.mixture(), batch, number);
    }
    return text;
  }
  if (*wanted.number < 0 || *wanted.number >= std::ssize(batch.samples)) {
    throw UsageError("inspect: step {} has samples 0 to {}, not {}", wanted.step, batch.samples.size() - 1,
                     *wanted.number);
  }
  auto const number = static_cast<std::size_t>(*wanted.number);
  PackFields fields;
  planner.mixture().read({&batch.samples[number], 1}, static_cast<std::int32_t>(number), fields);
  text += describe_sample(planner.mixture(), batch, number);
  text += describe_side("source", fields.source, data.vocabulary().source);
  return text + describe_side("target", fields.target, data.vocabulary().target);
}

}  // namespace heddle
