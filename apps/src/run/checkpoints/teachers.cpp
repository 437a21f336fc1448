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
#include "run/checkpoints/checkpoint_room.hpp"
#include "run/directory/warning.hpp"

namespace heddle {

namespace {

namespace fs = std::filesystem;

Checkpoint open_teacher(std::string const& place, Communicator const& world) {
  auto [checkpoints, skipped] = open_checkpoints({.checkpoint = place}, {value_key}, world, Verification::at_reading);
  if (world.rank() == 0) {
    std::ranges::for_each(skipped, report_on_stderr);
  }
  return std::move(checkpoints.front());
}

/// Whether a checkpoint's directory is `place` or inside it.
bool is_in(fs::path const& checkpoint, fs::path const& place) {
  fs::path const whole = fs::weakly_canonical(place);
  return !place.empty() &&
         std::mismatch(whole.begin(), whole.end(), checkpoint.begin(), checkpoint.end()).first == whole.end();
}

/// For each teacher the checkpoint that taught the run so far, where it is still there; otherwise the key's own text.
std::vector<std::string> teachers_so_far(Config const& config, fs::path const& run) {
  std::vector<std::string> places = config.train.teacher;
  auto const newest = newest_contents(run);
  std::vector<std::string> const before =
      newest ? parse_config(newest->config, "the checkpoint's configuration").train.teacher
             : std::vector<std::string>();
  for (std::size_t index = 0; index < places.size() && before.size() == places.size(); ++index) {
    places[index] = is_in(before[index], places[index]) && fs::exists(before[index]) ? before[index] : places[index];
  }
  return places;
}

}  // namespace

void find_teachers(Config& config, Registries const& registries, fs::path const& run, Communicator const& world) {
  std::vector<std::string> const so_far =
      world.rank() == 0 ? teachers_so_far(config, run) : std::vector<std::string>(config.train.teacher.size());
  for (std::size_t index = 0; index < so_far.size(); ++index) {
    std::string& place = config.train.teacher[index];
    Checkpoint const checkpoint = open_teacher(broadcast_text(world, so_far[index]), world);
    ModelConfig model = stored_config(checkpoint).model;
    ModelDescription const description = describe_model(model, registries.layers);
    check_description(checkpoint, description);
    std::string const key = config.train.places.of("teacher");
    if (!predicts_alike(description, describe_model(config.model, registries.layers))) {
      throw ConfigError(
          "{}: {} has other stacks than the model: expected both to be encoder-decoder, decoder-only or encoder-only "
          "models, with the same inputs",
          key, place);
    }
    if (model.positions == Positions::learned && model.max_length < config.model.max_length) {
      throw ConfigError("{}: {} has learned {} positions, and model.max_length is {}; expected at most as many", key,
                        place, model.max_length, config.model.max_length);
    }
    fs::path const directory = fs::weakly_canonical(checkpoint.directory());
    if (is_in(directory, run)) {
      throw ConfigError("{}: {} is the run itself; expected another one", key, place);
    }
    model.max_length = std::max(model.max_length, config.model.max_length);
    config.teachers.push_back(std::move(model));
    place = directory.string();
  }
}

void require_vocabulary_of_teachers(Config const& config, Vocabulary const& vocabulary, Communicator const& world) {
  for (std::string const& place : config.train.teacher) {
    CheckpointContents const contents = open_teacher(place, world).contents();
    if (contents.source_model != vocabulary.source.model() || contents.target_model != vocabulary.target.model()) {
      throw DataError(
          "{}: {} was trained with another vocabulary than this run's data have, so its distributions are over other "
          "tokens; prepare the data with its vocabulary: heddle prepare --vocab-model {}; or translate the data with "
          "it and train on the translations: heddle distill",
          config.train.places.of("teacher"), place, place);
    }
  }
}

std::vector<std::string> load_teachers(Config const& config, std::deque<Teacher>& teachers, Communicator const& world) {
  std::vector<std::string> messages;
  for (std::size_t index = 0; index < config.train.teacher.size(); ++index) {
    Checkpoint const checkpoint = open_teacher(config.train.teacher[index], world);
    std::string const place = checkpoint.directory().string();
    if (!teachers.empty()) {
      ParameterSet& parameters = teachers[index].parameters();
      check_parameters(checkpoint, parameters);
      for (Parameter const& parameter : parameters.all()) {
        load_value(checkpoint, parameter.spec.name, parameters, parameter);
      }
      parameters.bump_versions();
    }
    messages.push_back(fmt::format("teacher: {} (step {})", place, readable_count(checkpoint.state().step)));
  }
  return messages;
}

}  // namespace heddle
