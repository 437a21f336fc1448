#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "options.hpp"

namespace heddle {

/// The options of `train` and `run`.
struct TrainOptions {
  std::string config;
  std::vector<std::string> overrides;
  std::vector<std::string> plugins;
  bool trust_plugins = false;
  bool fresh = false;
  std::int64_t resume_from = -1;  ///< -1: from the newest checkpoint
  bool new_data = false;
  std::int64_t trace = 0;  ///< steps
  bool dry_run = false;    ///< of `train` only
  int ranks = 1;           ///< of a dry run
  VerbosityOptions verbosity{};
};

/// Adds those that mean the same to both. The others each command adds with its own words.
void add_train_options(CommandSyntax& syntax, TrainOptions& options);

/// The path run.directory, or with `fresh` the first of NAME-2, NAME-3, … that does not exist on this machine.
std::filesystem::path run_directory_for(std::filesystem::path name, bool fresh);

}  // namespace heddle
