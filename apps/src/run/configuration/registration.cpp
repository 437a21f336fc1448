#include "run/configuration/registration.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/host_name.hpp>
#include <heddle/core/base/paths.hpp>
#include <heddle/core/model/built_in_layers.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/core/plugins/loading.hpp>
#include <heddle/io/files/sha256.hpp>
#include <heddle/io/metrics/metric.hpp>
#include <heddle/kernels/register.hpp>
#include <set>

namespace heddle {
namespace {

std::string digest_of_file(std::string const& path) {
  FileText const file = read_file_text(path);
  if (!file.problem.empty()) {
    throw ConfigError("plug-in {}; expected a shared library", file.problem);
  }
  return sha256(file.text);
}

/// A line for each plug-in: "path (sha256 …)".
std::string listed(std::vector<PluginFile> const& plugins) {
  std::string lines = plugins.empty() ? "\n  no plug-in" : "";
  for (PluginFile const& plugin : plugins) {
    lines += fmt::format("\n  {} (sha256 {})", plugin.path, plugin.sha256);
  }
  return lines;
}

/// The given file for a plug-in: the same path, else the same name; the end if there is none.
std::vector<std::string>::iterator given_for(std::string const& path, std::vector<std::string>& given) {
  auto const same = std::find(given.begin(), given.end(), path);
  return same != given.end() ? same : std::find_if(given.begin(), given.end(), [&](std::filesystem::path const& other) {
    return other.filename() == std::filesystem::path(path).filename();
  });
}

std::string how_to_name(std::string const& path) {
  return fmt::format("--plugin PATH/{}", std::filesystem::path(path).filename().string());
}

/// "swish.so (sha256 …)", or why there is no digest.
std::string describe_file(std::string const& path) {
  try {
    return fmt::format("{} (sha256 {})", path, read_plugins({.paths = {path}, .sha256 = {}}).front().sha256);
  } catch (ConfigError const& error) {
    return fmt::format("{}; {} names a copy of it", error.what(), how_to_name(path));
  }
}

/// Where the working directory does not have a file that the configuration names, takes the one that is there from the
/// directory of `config_file`.
void find_plugins(PluginsConfig& plugins, std::filesystem::path const& config_file) {
  for (std::string& path : plugins.paths) {
    std::filesystem::path const beside = config_file.parent_path() / path;
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored) && std::filesystem::exists(beside, ignored)) {
      path = beside.string();
    }
  }
}

/// Adds plug-ins of the command line, with any digest.
void add_plugins(PluginsConfig& plugins, std::vector<std::string> const& paths) {
  plugins.paths.insert(plugins.paths.end(), paths.begin(), paths.end());
  if (!plugins.sha256.empty()) {
    plugins.sha256.resize(plugins.paths.size());
  }
}

}  // namespace

Config read_config(ConfigOptions const& options) {
  Config config = options.config.empty() ? parse_config("", "the defaults", options.overrides)
                                         : load_config(options.config, options.overrides);
  find_plugins(config.plugins, options.config);
  add_plugins(config.plugins, options.plugins);
  return config;
}

std::vector<PluginFile> read_plugins(PluginsConfig const& plugins) {
  std::vector<PluginFile> files;
  std::set<std::filesystem::path> seen;
  for (std::size_t index = 0; index < plugins.paths.size(); ++index) {
    std::string const& path = plugins.paths[index];
    std::string const digest = digest_of_file(path);
    std::string const expected = plugins.sha256.empty() ? "" : plugins.sha256[index];
    if (!expected.empty() && expected != digest) {
      throw ConfigError("plug-in {}: the file's SHA-256 is {}, but plugins.sha256 gives {}; it is not loaded", path,
                        digest, expected);
    }
    if (seen.insert(std::filesystem::weakly_canonical(path)).second) {
      files.push_back({path, digest});
    }
  }
  return files;
}

PluginsConfig trusted_plugins(PluginsConfig const& named, PluginTrust trust, std::string const& where) {
  PluginsConfig plugins = named;
  std::string untrusted;
  for (std::string& path : plugins.paths) {
    auto const given = given_for(path, trust.given);
    if (given != trust.given.end()) {
      path = *given;
      trust.given.erase(given);
    } else if (!trust.all) {
      untrusted += "\n  " + describe_file(path);
    } else if (std::error_code ignored; !std::filesystem::exists(path, ignored)) {
      throw ConfigError("the model was trained with the plug-in {}, which does not exist; name a copy of it: {}", path,
                        how_to_name(path));
    }
  }
  if (!untrusted.empty()) {
    throw UntrustedPluginsError(fmt::format(
        "{} names plug-ins, code that would run with your rights; they are not loaded:{}\nname each one that "
        "you trust with --plugin, or load all of them, unchecked, with --trust-plugins",
        where, untrusted));
  }
  add_plugins(plugins, trust.given);
  return plugins;
}

void require_same_plugins(std::vector<PluginFile> const& plugins, Communicator const& world) {
  // A digest for each plug-in; the paths may differ.
  std::string digests;
  for (PluginFile const& plugin : plugins) {
    digests += plugin.sha256 + "\n";
  }
  std::vector<std::string> const all = gather_texts(world, digests);
  std::vector<std::string> const files = gather_texts(world, host_name() + ":" + listed(plugins));
  std::string others;
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    others += all[rank] == all.front() ? "" : fmt::format("\nrank {} on {}", rank, files[rank]);
  }
  if (!others.empty()) {
    throw ConfigError("the ranks have different plug-ins; give all of them the same files\nrank 0 on {}{}",
                      files.front(), others);
  }
}

void register_everything(Registration const& registration, Registries& registries, Execution& execution) {
  register_built_in_kernels(registries.kernels, registration.level);
  register_built_in_layers(registries.layers);
  register_tasks(registries.tasks);
  register_schedules(registries.schedules);
  register_metrics(registries.metrics);
  for (PluginFile const& plugin : registration.plugins) {
    load_plugin(plugin.path, registries);
    if (!registration.trust_plugins) {
      require_checked(plugin.path, registries, execution);
    }
  }
}

}  // namespace heddle
