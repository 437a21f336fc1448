#pragma once

#include <filesystem>
#include <heddle/dist/planning/kernel_times.hpp>
#include <heddle/dist/planning/network_model.hpp>
#include <optional>
#include <string>

namespace heddle {

/// A file of measurements for plans, beside the kernels' times that kernels.cache names; empty: none is kept.
std::filesystem::path plan_file(std::string const& kernel_cache, char const* name);
inline constexpr char const* network_file_name = "network.json";
inline constexpr char const* call_times_file_name = "call-times.json";

/// Writes the model, atomically; makes missing directories.
void write_network(std::filesystem::path const& path, NetworkModel const& network);
/// Nothing if there is no such file. Throws DataError for other content.
std::optional<NetworkModel> read_network(std::filesystem::path const& path);

/// The times of these circumstances; none if there are none. Those of version 1 have no date. Throws DataError for
/// other content.
KernelTimes read_call_times(std::filesystem::path const& path, std::string const& circumstances);
/// Replaces those of these circumstances, atomically; others stay.
void write_call_times(std::filesystem::path const& path, std::string const& circumstances, KernelTimes const& times);

}  // namespace heddle
