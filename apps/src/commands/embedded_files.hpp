#pragma once

#include <span>
#include <string_view>

namespace heddle {

/// A file of an example plug-in (apps/examples/plugins), embedded when Heddle is built.
struct TemplateFile {
  std::string_view kind;  ///< the example's directory: "activation"
  std::string_view name;  ///< "swish.cpp"
  std::string_view text;
};

/// The files of all examples.
std::span<TemplateFile const> template_files();

// The templates of jobs, compiled into the program by cmake/HeddleEmbed.cmake.

std::string_view slurm_job_script();  ///< apps/slurm/train.sbatch
std::string_view pbs_job_script();    ///< apps/pbs/train.pbs
std::string_view lsf_job_script();    ///< apps/lsf/train.lsf

}  // namespace heddle
