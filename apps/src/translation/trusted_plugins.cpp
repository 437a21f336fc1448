#include "trusted_plugins.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "registration.hpp"

namespace heddle {
namespace {

namespace fs = std::filesystem;

/// The given file for a plug-in: the same path, else the same name; the end if there is none.
std::vector<std::string>::iterator given_for(std::string const& path, std::vector<std::string>& given) {
  auto const same = std::find(given.begin(), given.end(), path);
  return same != given.end() ? same : std::find_if(given.begin(), given.end(), [&](fs::path const& other) {
    return other.filename() == fs::path(path).filename();
  });
}

std::string how_to_name(std::string const& path) {
  return fmt::format("--plugin PATH/{}", fs::path(path).filename().string());
}

/// "swish.so (sha256 …)", or why there is no digest.
std::string describe_file(std::string const& path) {
  try {
    return fmt::format("{} (sha256 {})", path, read_plugins({.paths = {path}, .sha256 = {}}).front().sha256);
  } catch (ConfigError const& error) {
    return fmt::format("{}; {} names a copy of it", error.what(), how_to_name(path));
  }
}

}  // namespace

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
    } else if (std::error_code ignored; !fs::exists(path, ignored)) {
      throw ConfigError(
          fmt::format("the model was trained with the plug-in {}, which is not there; name a copy of it: {}", path,
                      how_to_name(path)));
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

}  // namespace heddle
