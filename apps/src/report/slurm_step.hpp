#pragma once

#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

namespace heddle {

/// The step of a Slurm job in which a process runs.
struct SlurmStep {
  std::string job;
  std::string step;  ///< "": outside of steps, for example by `mpirun` in a job's script
};

/// This process's; nothing outside of Slurm.
inline std::optional<SlurmStep> own_slurm_step() {
  auto const variable = [](char const* name) {
    char const* const text = std::getenv(name);
    return std::string(text == nullptr ? "" : text);
  };
  std::string job = variable("SLURM_JOB_ID");
  return job.empty() ? std::nullopt : std::optional(SlurmStep{std::move(job), variable("SLURM_STEP_ID")});
}

}  // namespace heddle
