#pragma once

#include <string_view>

namespace heddle {

/// The template of a Slurm job, apps/slurm/train.sbatch, compiled into the program by cmake/HeddleEmbed.cmake.
std::string_view job_script();

}  // namespace heddle
