#pragma once

#include <cstdint>
#include <filesystem>
#include <heddle/core/layers/registries.hpp>
#include <heddle/core/parallel/mesh.hpp>
#include <heddle/dist/trace/step_times.hpp>
#include <heddle/dist/watch/watch.hpp>
#include <string>

#include "run/configuration/kernel_cache.hpp"
#include "run/configuration/options.hpp"

namespace heddle {

/// The objects that exist before a training run; all of them outlive the trainer.
struct TrainerSetup {
  TrainOptions const& options;
  Config const& config;  ///< with the options' overrides and plug-ins
  Registries const& registries;
  RunKernels const& kernels;
  ParallelState const& parallel;
  Execution& execution;
  Watch& watch;
  std::filesystem::path directory;  ///< the run's; made once the configuration and the data have been checked
  std::string instruction_set;      ///< a description of the kernels'
  std::string command;              ///< the whole command line
  std::string resume_command;       ///< the command line that resumes: without options that hold only once
  StepTimes& times;                 ///< measures the world's communicator
  StepTrace* trace = nullptr;       ///< observes the kernels; null: nothing is traced
  std::int64_t clock_offset = 0;    ///< this rank's, see write_trace

  bool is_rank_zero() const { return parallel.world.rank() == 0; }
};

}  // namespace heddle
