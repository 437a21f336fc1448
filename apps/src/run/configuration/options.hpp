#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "run/directory/warning.hpp"

namespace heddle {

struct Config;
struct Registries;

/// A configuration as commands get it.
struct ConfigOptions {
  std::string config;                  ///< RUN.toml
  std::vector<std::string> overrides;  ///< "section.key=value"
  std::vector<std::string> plugins;
};
/// The options of `train` and `run`.
struct TrainOptions : ConfigOptions {
  bool trust_plugins = false;
  bool fresh = false;
  std::optional<std::int64_t> resume_from;  ///< the step to go back to; none: the newest checkpoint's
  bool new_data = false;
  std::optional<std::string> stage_data;  ///< a directory of each host for copies of datasets; none: none are made
  std::int64_t trace = 0;                 ///< steps
  bool dry_run = false;                   ///< `train` only
  std::optional<int> ranks;               ///< number of ranks of a dry run; none: 1
  Verbosity verbosity = Verbosity::normal;
  /// Changes the configuration once plug-ins have registered what they bring; the same on all ranks. Null: nothing.
  std::function<void(Config&, Registries const&)> change = {};
};

}  // namespace heddle
