#pragma once

#include <array>
#include <boost/json.hpp>
#include <heddle/core/model/description.hpp>
#include <heddle/core/model/model_part.hpp>
#include <heddle/core/model/pipeline_plan.hpp>
#include <heddle/dist/planning/memory_plan.hpp>
#include <heddle/dist/report/efficiency.hpp>
#include <heddle/dist/report/traffic_report.hpp>
#include <heddle/dist/trace/step_times.hpp>
#include <optional>
#include <string>
#include <vector>

#include "slurm_step.hpp"

namespace heddle {

/// A group's communication on one rank.
struct GroupFacts {
  std::int64_t bytes = 0;
  std::optional<double> seconds = {};  ///< in its steps; nothing where it was in none of the verbs during a step
};

/// One rank's part of a report.
struct RankFacts {
  MemoryReport memory;
  // Once training has ended:
  StepTimes::Seconds seconds;
  std::array<GroupFacts, traffic_groups> communication{};
  double peak = 0;  ///< operations per second of large matrix products; 0: not measured
};

/// The steps of this start.
struct TrainingFacts {
  std::int64_t first_step = 0;
  std::int64_t last_step = 0;
  std::int64_t tokens = 0;
  std::int64_t tokens_of_first = 0;
  double operations = 0;  ///< of the model's matrix products, all ranks together
  double seconds = 0;
  double seconds_of_first = 0;

  std::int64_t steps() const { return last_step - first_step + 1; }
  /// The first step, which also warms up, is left out where there are others.
  double tokens_per_second() const;
};

/// An earlier start in the same directory, with which computing time is compared.
struct Reference {
  std::int64_t ranks = 0;
  double computing_seconds_per_token = 0;  ///< of all ranks together
};

/// Everything that a report of a run says, on rank 0.
struct RunFacts {
  Config const& config;
  ModelDescription model;
  PipelinePlan plan;
  Mesh mesh;  ///< rank 0's
  VocabularySizes vocabulary;
  std::vector<std::string> hosts;  ///< by rank
  std::vector<RankFacts> ranks;
  std::vector<SelectedKernel> kernels;
  std::int64_t parameters = 0;
  std::string program;  ///< with its version
  std::string command;
  std::string started;  ///< in UTC
  std::optional<SlurmStep> slurm = {};
  std::string state = "training";
  std::optional<Reference> reference = {};

  // Once training has ended:
  std::optional<TrainingFacts> training = {};
  TrafficByGroup traffic{};  ///< of all ranks
  /// Of all ranks in their steps; nothing where no rank was in the verb during a step.
  std::array<std::array<std::optional<double>, verbs>, traffic_groups> seconds{};
  std::optional<Efficiency> efficiency = {};
  std::optional<double> computation_scaling = {};
  std::optional<double> joules = {};
  std::string energy_source = {};
  std::string no_energy = {};  ///< the reason, where joules are not known
  std::int64_t best_step = 0;  ///< 0: nothing was validated
  double best_valid_loss = 0;

  double peak() const;  ///< of all ranks together; 0: not measured
  /// The share of the peak at which the model's matrix products ran in training, once it has ended; nothing if the peak
  /// was not measured.
  std::optional<double> model_utilisation() const;
};

/// The content of report.json, as docs/run-directory.md describes it.
boost::json::object to_json(RunFacts const& facts);

/// The rates, efficiencies and energy in lines of text: everything that is known.
std::string describe_speed(RunFacts const& facts);

}  // namespace heddle
