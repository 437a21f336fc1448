#include "inspection/run/step_samples.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/tensor/runtime.hpp>
#include <heddle/io/checkpoint/store.hpp>
#include <heddle/io/samples/batches.hpp>
#include <heddle/io/samples/training_data.hpp>
#include <tuple>

#include "run/checkpoints/checkpoint.hpp"
#include "run/configuration/config_check.hpp"

namespace heddle {

namespace {

/// The place in the data of a checkpoint.
struct Place {
  std::int64_t step = 0;  ///< steps done
  std::optional<MixtureCursor> cursor = {};
};

/// The places of the newest checkpoint before a step, and of the oldest one after it; without a cursor where there is
/// none.
std::pair<Place, Place> places_around(RunView const& run, std::int64_t step) {
  std::optional<CheckpointEntry> before;
  std::optional<CheckpointEntry> after;
  for (CheckpointEntry const& entry : list_checkpoints(run.path, CheckpointStore::Check::sizes)) {
    if (entry.step < step && (!before || entry.step > before->step)) {
      before = entry;
    } else if (entry.step >= step && (!after || entry.step < after->step)) {
      after = entry;
    }
  }
  auto const place_of = [](std::optional<CheckpointEntry> const& entry) {
    if (!entry || entry->step == 0) {
      return Place();
    }
    RunView const view = open_run(entry->directory.string(), "last", {});
    return Place{entry->step, data_cursor(view.checkpoint->contents(), entry->directory.string())};
  };
  return {place_of(before), place_of(after)};
}

/// Plans the batches after `done` steps up to that of a step, and returns the last one. Throws UsageError where the
/// data end before.
GlobalBatch plan_to(std::int64_t step, BatchPlanner& planner, std::int64_t done) {
  GlobalBatch batch;
  for (; done < step; ++done) {
    if (planner.exhausted()) {
      throw UsageError("inspect: step {}: the run's data end after step {}", readable_count(step),
                       readable_count(done));
    }
    batch = planner.next();
  }
  return batch;
}

bool same_place(MixtureCursor const& left, MixtureCursor const& right) {
  auto const place = [](SampleCursor const& own) { return std::tie(own.corpus, own.epoch, own.position, own.credit); };
  return left.stage.stage == right.stage.stage && left.stage.steps == right.stage.steps &&
         std::ranges::equal(left.corpora, right.corpora, {}, place, place);
}

/// Plans on to the checkpoint after a step. Throws UsageError where the run came to another place in the data: it does
/// not record after which step it skipped a batch, a validation ended a stage, or it went on with other data.
void require_run_came_here(std::int64_t step, BatchPlanner& planner, Place const& start, Place const& after) {
  if (!after.cursor) {
    return;
  }
  plan_to(after.step, planner, step);
  if (!same_place(planner.cursor(), *after.cursor)) {
    throw UsageError(
        "inspect: step {}: after step {} and by step {} the run skipped batches that were not finite, or a validation "
        "ended a stage of the data, or its data or configuration changed, and the checkpoints do not say where; "
        "expected "
        "a step that is not between these",
        readable_count(step), readable_count(start.step), readable_count(after.step));
  }
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
  require_read_again(config, "inspect --step");
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
  auto const [start, after] = places_around(run, wanted.step);
  if (start.cursor) {
    planner.seek(*start.cursor);
  }
  GlobalBatch const batch = plan_to(wanted.step, planner, start.step);
  require_run_came_here(wanted.step, planner, start, after);
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
