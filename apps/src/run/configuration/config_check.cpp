#include "config_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <heddle/core/base/error.hpp>
#include <heddle/core/layers/low_rank.hpp>
#include <heddle/core/model/layout.hpp>
#include <heddle/core/model/model.hpp>
#include <heddle/core/parameters/update_rules.hpp>
#include <heddle/dist/planning/dry_run.hpp>
#include <heddle/io/samples/sample_source.hpp>

#include "run/metrics/measure.hpp"

namespace heddle {

WholeModel whole_model(Config config, Registries const& registries, VocabularySizes const& sizes) {
  config.parallel = {};
  Mesh const mesh({1, 1, 1, 1}, 0, 1);
  ParallelState const parallel = idle_parallel_state(mesh, config.parallel);
  ParameterSet parameters(mesh);
  Model const model({.name = "",
                     .model = config.model,
                     .dtype = dtype_of(config.train.precision),
                     .kernels = {registries.kernels, config.kernels},
                     .parallel = parallel,
                     .parameters = parameters},
                    registries.layers, sizes);
  parameters.arrange();
  return WholeModel::gather(ParallelState(), parameters);
}

void resolve_validate_bleu(Config& config, Registries const& registries) {
  if (!config.train.places.given("validate_bleu") &&
      (divides_model(config.parallel) || !config.train.validate_metrics.empty() ||
       !registries.tasks.of(config).translates() ||
       no_translation_reason(describe_model(config.model, registries.layers)))) {
    config.train.validate_bleu = false;
  }
}

void require_read_again(Config const& config, std::string_view reader) {
  if (is_stream(config.data)) {
    throw ConfigError(
        "{} = \"-\": {} reads data that the run reads, too, and the standard input is read once; expected a part of it "
        "in a file, as in --set data.train=part.tsv",
        config.data.places.of("train"), reader);
  }
}

namespace {

/// Validation translates on each data rank by itself, which needs the whole model there.
void require_no_translation(Config const& config, Registries const& registries) {
  std::vector<std::string> sets{""};
  for (auto const& [set, metrics] : config.data.valid_metrics) {
    sets.push_back(set);
  }
  for (std::string const& set : sets) {
    if (divides_model(config.parallel) && !translation_metrics(config, registries.metrics, set).empty()) {
      throw ConfigError(
          "{}: no rank has the model with which to translate the validation data; expected "
          "train.validate_bleu = false and no metrics of translations, which `heddle evaluate` measures with a "
          "checkpoint",
          config.parallel.places.of(config.parallel.expert > 1 ? "expert" : "shard_parameters"));
    }
  }
}

}  // namespace

ModelDescription describe_trainable(Config const& config, Registries const& registries) {
  Task const& task = registries.tasks.of(config);
  ModelDescription model = describe_model(config.model, registries.layers);
  if (auto const reason = model.untrainable_reason()) {
    throw ConfigError(*reason);
  }
  TrainConfig const& train = config.train;
  if (train.validate_every == 0) {
    return model;
  }
  require_no_translation(config, registries);
  for (auto const& [set, metrics] : config.data.valid_metrics) {
    if (!translation_metrics(config, registries.metrics, set).empty()) {
      require_translation(model, "data.valid_metrics." + set);
    }
  }
  if (!translation_metrics(config, registries.metrics, "").empty()) {
    bool const by_program = !train.validate_bleu && train.validate_metrics.empty();
    std::string const key = train.validate_bleu ? "validate_bleu"
                            : by_program        ? "validate_command"
                                                : "validate_metrics";
    std::string const wanted = by_program
                                   ? "[train.validate_command]"
                                   : train.places.of(key) + " = " +
                                         (train.validate_bleu ? "true" : to_toml(OptionValue(train.validate_metrics)));
    std::string const instead = by_program
                                    ? "leave [train.validate_command] out"
                                    : fmt::format("set train.{} = {}", key, train.validate_bleu ? "false" : "[]");
    require_translation(model, wanted, "; or " + instead);
    if (!task.translates()) {
      throw ConfigError("{} measures translations, and {} makes none; {}", wanted, place_of_task(config), instead);
    }
  }
  best_measures(config, registries);  // which throws if one is not measured
  return model;
}

void check_config(Config config, Registries const& registries, std::optional<int> ranks) {
  registries.kernels.require_known(config.kernels);
  resolve_rules(config.optimizer, registries.kernels, registries.schedules);
  resolve_validate_bleu(config, registries);
  ModelDescription const model = describe_trainable(config, registries);
  MeshShape const shape = shape_of(config.parallel);
  make_mesh(config, model, 0,
            ranks.value_or(shape.with(MeshAxis::data, std::max(1, shape.size(MeshAxis::data))).ranks()));
  constexpr std::int64_t short_sentences = 16;
  config.model.max_length = std::min(config.model.max_length, short_sentences);  // tables of positions are computed
  // The data decide whether the vocabularies are joint, and that on the names of the tables: either may be right.
  constexpr std::int64_t usual_vocabulary = 8000;
  std::exception_ptr problem;
  for (bool const joint : {true, false}) {
    try {
      auto const names = whole_model(config, registries, {usual_vocabulary, usual_vocabulary, joint}).names();
      require_patterns_match(config.optimizer, names);
      require_targets_match(config.model.adapter, names);
      require_some_trained(config.optimizer, names);
      return;
    } catch (ConfigError const&) {
      problem = problem ? problem : std::current_exception();
    }
  }
  std::rethrow_exception(problem);
}

}  // namespace heddle
