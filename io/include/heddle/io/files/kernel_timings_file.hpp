#pragma once

#include <filesystem>
#include <heddle/core/operations/timings.hpp>
#include <map>
#include <string>
#include <string_view>

namespace heddle {

/// Measured kernel times by machine_name().
using TimingsByMachine = std::map<std::string, KernelTimings>;

/// The times as JSON text, a line per problem.
std::string to_json(TimingsByMachine const& timings);

/// The inverse of to_json. Throws DataError, which names `source`, for any other text.
TimingsByMachine parse_kernel_timings(std::string_view text, std::string const& source);

/// Reads the file's times; nothing if there is no such file. Throws DataError if it cannot be read or has other
/// content.
TimingsByMachine read_kernel_timings(std::filesystem::path const& path);

/// Adds to the file's times; whole problems are replaced. Makes missing directories. The file changes atomically.
/// Throws DataError if it has other content, which then stays unchanged, and Error if it cannot be written.
void add_kernel_timings(std::filesystem::path const& path, TimingsByMachine const& timings);

}  // namespace heddle
