#pragma once

#include <filesystem>
#include <heddle/core/config/config.hpp>
#include <heddle/core/operations/timings.hpp>
#include <heddle/core/parallel/communicator.hpp>
#include <string>
#include <vector>

namespace heddle {

/// The file that kernels.cache means: of "auto" heddle/kernels.json in $XDG_CACHE_HOME or ~/.cache. Empty: none.
std::filesystem::path kernel_cache_path(std::string const& cache);

/// The times by which a run's `auto` chooses, and how that came.
struct RunKernels {
  KernelTimings timings;
  std::vector<std::string> notes;  ///< lines for the user; only on rank 0
  std::string file;                ///< what the run's kernels.json has to hold from now on; empty: what it holds
};

/// Times the same on every rank, as rank 0 finds them, and after every restart: a run that has no checkpoint yet takes
/// the cache's, and one that goes on those in its kernels.json, but for another machine. Notes tell what may change
/// the last bits of a run: times that are not there, and ranks on different machines. Collective over `world`. Kokkos
/// runs.
RunKernels choose_run_kernels(KernelChoices const& choices, std::filesystem::path const& directory,
                              Communicator const& world);

/// This machine's times in the file. Where it cannot be used, none, and `notes` get a line that says so.
KernelTimings read_own_timings(std::filesystem::path const& file, std::vector<std::string>& notes);

}  // namespace heddle
