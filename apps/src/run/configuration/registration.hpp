#pragma once

#include <heddle/core/base/cpu_level.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/core/config/config.hpp>
#include <heddle/core/layers/registries.hpp>
#include <heddle/core/parallel/communicator.hpp>
#include <string>
#include <vector>

#include "options.hpp"

namespace heddle {

/// A shared library as it was read.
struct PluginFile {
  std::string path;
  std::string sha256;
};

/// Reads the plug-ins' files, without opening them as libraries; a file that is named twice is in the result once.
/// Throws ConfigError for a file that cannot be read or does not have the digest that the configuration gives.
std::vector<PluginFile> read_plugins(PluginsConfig const& plugins);

/// The configuration of a command line: of its file, else the defaults. Plug-ins of the command line are added, with
/// any digest; a plug-in of the file that the working directory does not have is taken from the file's directory.
Config read_config(ConfigOptions const& options);

/// Thrown where a checkpoint names plug-ins that the user has neither named again nor trusts.
struct UntrustedPluginsError : ConfigError {
  using ConfigError::ConfigError;
};

/// The plug-ins that the user of a checkpoint trusts.
struct PluginTrust {
  std::vector<std::string> given = {};  ///< files of --plugin
  bool all = false;                     ///< --trust-plugins, or the user's own plugins.paths
};

/// The plug-ins to load for a checkpoint whose configuration names `named`: a person who can write a checkpoint must
/// not decide which code its user runs. Each needs a given file of the same name, which is loaded in its place and must
/// have the digest that `named` gives, or trust in all. Other given files are added. Throws
/// UntrustedPluginsError with the paths and digests of the others, ConfigError for a trusted one that does not exist;
/// `where` names the checkpoint.
PluginsConfig trusted_plugins(PluginsConfig const& named, PluginTrust trust, std::string const& where);

/// Throws ConfigError that names the ranks, with their hosts and paths, that have another file than rank 0. Collective
/// over `world`.
void require_same_plugins(std::vector<PluginFile> const& plugins, Communicator const& world);

struct Registration {
  std::vector<PluginFile> plugins = {};
  bool trust_plugins = false;  ///< they are not checked
  CpuLevel level = usable_cpu_level();
};

/// Registers the built-in kernels, for that instruction set, and layers, then the plug-ins' in their order, and checks
/// each plug-in (require_checked). Throws ConfigError if one cannot be loaded or is wrong.
void register_everything(Registration const& registration, Registries& registries, Execution& execution);

}  // namespace heddle
