#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "options.hpp"

namespace heddle {

/// The options that `train` and `run` share.
struct TrainOptions {
  std::string config;
  std::vector<std::string> overrides;
  std::vector<std::string> plugins;
  bool trust_plugins = false;
  bool fresh = false;
  std::int64_t resume_from = -1;  ///< of `train` only: `run` would go back again at each restart
  bool new_data = false;          ///< of `train` only
  std::int64_t trace = 0;         ///< of `train` only: steps
  bool dry_run = false;           ///< of `train` only
  int ranks = 1;                  ///< of a dry run
  VerbosityOptions verbosity{};
};

void add_train_options(CommandSyntax& syntax, TrainOptions& options);

/// The path run.directory, or with `fresh` the first of NAME-2, NAME-3, … that does not exist on this machine.
std::filesystem::path run_directory_for(std::filesystem::path name, bool fresh);

}  // namespace heddle
