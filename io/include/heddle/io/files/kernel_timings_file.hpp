#pragma once

#include <filesystem>
#include <heddle/core/operations/timings.hpp>
#include <map>
#include <string>
#include <string_view>

namespace heddle {

/// Measured kernel times by machine_name().
using TimingsByMachine = std::map<std::string, KernelTimings>;

/// JSON text, a line per problem.
std::string to_json(TimingsByMachine const& timings);

/// to_json's inverse. Throws DataError, which names `source`, for anything else.
TimingsByMachine parse_kernel_timings(std::string_view text, std::string const& source);

/// The file's; nothing where there is no such file. DataError where it cannot be read or holds something else.
TimingsByMachine read_kernel_timings(std::filesystem::path const& path);

/// Adds to the file's times, whole problems being replaced. Directories are made. The file changes at once or not at
/// all. DataError where there is something else, which stays as it is; Error where it cannot be written.
void add_kernel_timings(std::filesystem::path const& path, TimingsByMachine const& timings);

}  // namespace heddle
