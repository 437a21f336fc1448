#pragma once

#include <string_view>

namespace heddle {

// The templates of jobs, compiled into the program by cmake/HeddleEmbed.cmake.

std::string_view slurm_job_script();  ///< apps/slurm/train.sbatch
std::string_view pbs_job_script();    ///< apps/pbs/train.pbs
std::string_view lsf_job_script();    ///< apps/lsf/train.lsf

}  // namespace heddle
