#include "run/checkpoints/teachers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/run.hpp>
#include <utility>

#include "run/checkpoints/checkpoint.hpp"
#include "run/directory/warning.hpp"

namespace heddle {

namespace {

Checkpoint open_teacher(std::string const& place, Communicator const& world) {
  auto [checkpoints, skipped] = open_checkpoints({.checkpoint = place}, {value_key}, world, Verification::at_reading);
  if (world.rank() == 0) {
    std::ranges::for_each(skipped, report_on_stderr);
  }
  return std::move(checkpoints.front());
}

}  // namespace

void find_teachers(Config& config, Registries const& registries, Communicator const& world) {
  for (std::string& place : config.train.teacher) {
    Checkpoint const checkpoint = open_teacher(place, world);
    ModelConfig model = stored_config(checkpoint).model;
    check_description(checkpoint, describe_model(model, registries.layers));
    model.max_length = std::max(model.max_length, config.model.max_length);
    config.teachers.push_back(std::move(model));
    place = std::filesystem::weakly_canonical(checkpoint.directory()).string();
  }
}

std::vector<std::string> load_teachers(Config const& config, Vocabulary const& vocabulary,
                                       std::deque<Teacher>& teachers, Communicator const& world) {
  std::vector<std::string> messages;
  for (std::size_t index = 0; index < config.train.teacher.size(); ++index) {
    Checkpoint const checkpoint = open_teacher(config.train.teacher[index], world);
    std::string const place = checkpoint.directory().string();
    CheckpointContents const& contents = checkpoint.contents();
    if (contents.source_model != vocabulary.source.model() || contents.target_model != vocabulary.target.model()) {
      throw DataError(
          "{}: {} was trained with another vocabulary than this run's data have, so its distributions are over other "
          "tokens; prepare the data with its vocabulary: heddle prepare --vocab-model {}; or translate the data with "
          "it and train on the translations",
          config.train.places.of("teacher"), place, place);
    }
    if (!teachers.empty()) {
      ParameterSet& parameters = teachers[index].parameters();
      check_parameters(checkpoint, parameters);
      for (Parameter const& parameter : parameters.all()) {
        load_value(checkpoint, parameter.spec.name, parameter);
      }
      parameters.bump_versions();
    }
    messages.push_back(fmt::format("teacher: {} (step {})", place, readable_count(checkpoint.state().step)));
  }
  return messages;
}

}  // namespace heddle
