#pragma once

#include <filesystem>
#include <heddle/core/layers/registries.hpp>
#include <string>
#include <vector>

namespace heddle {

/// The kinds of plug-ins that there are examples of.
std::vector<std::string> plugin_kinds();

/// Writes the example of a kind as a project of its own, with a README, into `directory`, which must not exist or be
/// empty. The directory's name takes the place of the example's in file names and in code. Throws UsageError where that
/// is no name for C++, where one of the `built_in` operations, implementations, layers, functions or kinds of norm has
/// it, and where the directory has files; Error where it cannot be written. Returns the plug-in's name.
std::string write_plugin(std::filesystem::path const& directory, std::string const& kind, Registries const& built_in);

}  // namespace heddle
