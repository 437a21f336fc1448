#pragma once

#include <filesystem>
#include <heddle/core/config/config.hpp>
#include <heddle/core/parallel/communicator.hpp>
#include <heddle/io/files/measured_times.hpp>
#include <string>
#include <vector>

namespace heddle {

/// The file of measured times that kernels.cache names: for "auto" heddle/kernels.json in $XDG_CACHE_HOME or ~/.cache.
/// Empty: none.
std::filesystem::path kernel_cache_path(std::string const& cache);

/// The times that a run's `auto` uses, and their origin.
struct RunKernels {
  KernelTimings timings;
  std::vector<std::string> notes;  ///< lines for the user; only on rank 0
  std::string file;                ///< the future content of the run's kernels.json; empty: it stays unchanged
};

/// Reads the times, the same on every rank, as rank 0 finds them, and after every restart. A run without checkpoint
/// uses the cache's; a resumed one uses the times in its kernels.json, unless they are for another machine. Notes
/// report what may change the last bits of a run: missing times, and ranks on different machines. `machine` is this
/// rank's machine_name. Collective over `world`.
RunKernels choose_run_kernels(KernelChoices const& choices, std::filesystem::path const& directory,
                              std::string const& machine, Communicator const& world);

/// The times in the file. If the file cannot be used, none, and `notes` gets a line with the reason.
MeasuredTimes read_cache(std::filesystem::path const& file, std::vector<std::string>& notes);

/// Adds times to the file. Returns "kept in FILE", or why nothing is kept.
std::string keep_in_cache(std::filesystem::path const& file, MeasuredTimes const& times);

}  // namespace heddle
