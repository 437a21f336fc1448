#pragma once

#include <filesystem>
#include <heddle/core/base/cpu_level.hpp>
#include <heddle/core/config/config.hpp>
#include <heddle/core/layers/registries.hpp>
#include <heddle/core/parallel/communicator.hpp>
#include <string>
#include <vector>

namespace heddle {

/// A shared library as it was read.
struct PluginFile {
  std::string path;
  std::string sha256;
};

/// Reads the plug-ins' files, without opening them as libraries; a file that is named twice is in the result once.
/// Throws ConfigError for a file that cannot be read or has not the digest that the configuration gives.
std::vector<PluginFile> read_plugins(PluginsConfig const& plugins);

/// Where the working directory does not have a file that the configuration names, takes the one that is there from the
/// directory of `config_file`.
void find_plugins(PluginsConfig& plugins, std::filesystem::path const& config_file);

/// Adds plug-ins of the command line, with any digest.
void add_plugins(PluginsConfig& plugins, std::vector<std::string> const& paths);

/// Throws ConfigError that names the ranks, with their hosts and paths, that have another file than rank 0. Collective
/// over `world`.
void require_same_plugins(std::vector<PluginFile> const& plugins, Communicator const& world);

struct Registration {
  std::vector<PluginFile> plugins = {};
  bool trust_plugins = false;  ///< they are not checked
  CpuLevel level = usable_cpu_level();
};

/// Registers the built-in kernels, for that instruction set, and layers, then those of the plug-ins, in
/// order, each of which is checked (require_checked). Throws ConfigError if one cannot be loaded or is wrong.
void register_everything(Registration const& registration, Registries& registries, Execution& execution);

}  // namespace heddle
