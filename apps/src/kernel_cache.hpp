#pragma once

#include <filesystem>
#include <heddle/core/communicator.hpp>
#include <heddle/core/config.hpp>
#include <heddle/core/kernel_timings.hpp>
#include <string>

namespace heddle {

/// The file that kernels.cache means: of "auto" heddle/kernels.json in $XDG_CACHE_HOME or ~/.cache. Empty: none.
std::filesystem::path kernel_cache_path(std::string const& cache);

/// The times by which a run's `auto` chooses, and how that came.
struct RunKernels {
  KernelTimings timings;
  std::string note;  ///< a line for the user, or empty
  std::string file;  ///< what the run's kernels.json has to hold from now on; empty: what it holds
};

/// The same on every rank, as rank 0 finds it, and after every restart: a run that begins takes the cache's times, and
/// one that goes on those in its kernels.json, but for another machine. Collective over `world`. Kokkos runs.
RunKernels choose_run_kernels(std::string const& cache, std::filesystem::path const& directory,
                              Communicator const& world);

/// This machine's times in the file. Where it can not be used, none, and `note` is a line that says so.
KernelTimings read_own_timings(std::filesystem::path const& file, std::string& note);

}  // namespace heddle
