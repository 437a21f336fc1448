#pragma once

#include <filesystem>
#include <string>

namespace heddle {

/// The configuration of a run, without its model, that mixes data as OpusTrainer's configuration in the file says: TOML
/// with corpora, stages and modifiers. The corpora keep the names of their text files. Throws DataError with the file
/// for one that OpusTrainer would not take, and for what Heddle cannot do.
std::string config_of_opustrainer(std::filesystem::path const& path);

}  // namespace heddle
