#pragma once

#include <deque>
#include <filesystem>
#include <heddle/core/config/config.hpp>
#include <heddle/core/layers/registries.hpp>
#include <heddle/core/model/teacher.hpp>
#include <heddle/core/parallel/communicator.hpp>
#include <heddle/io/tokenizers/tokenizer.hpp>
#include <string>
#include <vector>

namespace heddle {

/// Sets Config::teachers to the models of the checkpoints that train.teacher names, and names there the checkpoints
/// that were chosen. For a `run` that has checkpoints of its own these are the ones that it was taught by so far, as
/// long as they are where the key says: a directory may have another best one meanwhile. Throws DataError for a place
/// without a checkpoint that verifies, ConfigError for a teacher that does not predict what the model does, for one
/// that is too short, for the run itself, and for a layer that is not registered. Collective over `world`.
void find_teachers(Config& config, Registries const& registries, std::filesystem::path const& run,
                   Communicator const& world = Communicator::self());

/// Throws DataError for a teacher with another vocabulary than the run's.
void require_vocabulary_of_teachers(Config const& config, Vocabulary const& vocabulary,
                                    Communicator const& world = Communicator::self());

/// Reads this rank's part of the values of the teachers, none or one for each of train.teacher. Returns a line for
/// each. Throws DataError as Checkpoint::read does. Collective over `world`.
std::vector<std::string> load_teachers(Config const& config, std::deque<Teacher>& teachers, Communicator const& world);

}  // namespace heddle
