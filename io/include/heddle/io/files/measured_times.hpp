#pragma once

#include <array>
#include <filesystem>
#include <heddle/core/measure/timed_calls.hpp>
#include <heddle/core/operations/timings.hpp>
#include <map>
#include <string>
#include <string_view>

namespace heddle {

/// A measured network.
struct NetworkTimes {
  std::string source{};                                  ///< a description of the measurement; empty: not measured
  std::map<std::string, std::array<double, 2>> links{};  ///< seconds of a message and of each byte, by link

  bool operator==(NetworkTimes const&) const = default;
};

/// The content of the file that kernels.cache names.
struct MeasuredTimes {
  std::map<std::string, KernelTimings> kernels{};  ///< `heddle kernels --benchmark`, by machine_name()
  std::map<std::string, TimedCalls> calls{};       ///< `heddle plan`, by machine, choice of kernels and ranks of a node
  NetworkTimes network{};                          ///< `heddle plan --measure`

  bool operator==(MeasuredTimes const&) const = default;
};

/// The times as JSON text: a line for each problem, kind of calls and link.
std::string to_json(MeasuredTimes const& times);

/// The inverse of to_json. Throws DataError, which names `source`, for any other text.
MeasuredTimes parse_measured_times(std::string_view text, std::string const& source);

/// Reads the file's times; none if there is no such file. Throws DataError if it is not a regular file, cannot be read
/// or has other content.
MeasuredTimes read_measured_times(std::filesystem::path const& path);

/// Adds times to the file's: problems, all calls of the same circumstances and the network replace those of the file.
/// Makes missing directories. The file changes atomically. Throws DataError if it has other content, which then stays
/// unchanged, and Error if it cannot be written.
void add_measured_times(std::filesystem::path const& path, MeasuredTimes const& times);

}  // namespace heddle
