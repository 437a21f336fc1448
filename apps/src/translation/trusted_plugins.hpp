#pragma once

#include <heddle/core/base/error.hpp>
#include <heddle/core/config/config.hpp>
#include <string>
#include <vector>

namespace heddle {

/// A checkpoint names plug-ins that nobody has named again or trusts.
struct UntrustedPluginsError : ConfigError {
  using ConfigError::ConfigError;
};

/// The plug-ins that the user of a checkpoint trusts.
struct PluginTrust {
  std::vector<std::string> given = {};  ///< files of --plugin
  bool all = false;                     ///< --trust-plugins, or the user's own plugins.paths
};

/// The plug-ins to load for a checkpoint whose configuration names `named`: whoever can write a checkpoint must not
/// decide which code its user runs. Each needs a given file of the same name, which is loaded in its place and must
/// have the digest that `named` gives, or trust in all. Given files beside these are added. Throws
/// UntrustedPluginsError with the paths and digests of the others, ConfigError for a trusted one that is not there;
/// `where` names the checkpoint.
PluginsConfig trusted_plugins(PluginsConfig const& named, PluginTrust trust, std::string const& where);

}  // namespace heddle
