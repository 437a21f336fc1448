#pragma once

#include <boost/json/object.hpp>
#include <chrono>
#include <filesystem>
#include <heddle/core/layers/registries.hpp>
#include <heddle/core/measure/energy.hpp>
#include <heddle/core/model/description.hpp>
#include <heddle/dist/planning/memory_plan.hpp>
#include <heddle/dist/report/traffic_report.hpp>
#include <heddle/dist/trace/step_times.hpp>
#include <heddle/dist/training/training_engine.hpp>
#include <optional>
#include <string>

#include "mesh.hpp"
#include "run_text.hpp"

namespace heddle {

/// A training run's report on its ranks: the mesh, their memory, the traffic of their groups, and how well they were
/// used. The constructor and `end` are collective over the world; strings are the same on every rank and end with a
/// line break.
class RunReport {
 public:
  struct Setup {
    Config const& config;
    Registries const& registries;
    ParallelState const& parallel;
    VocabularySizes vocabulary;
    std::string command;
  };

  /// Runs this rank's steps dry with the largest of its micro-batches (see plan_memory). Setup's references must
  /// outlive the report.
  RunReport(Setup const& setup, PlannedPacks const& packs);

  ModelDescription const& model() const { return model_; }
  /// The content of report.json, as docs/reference/run-directory.md describes it.
  boost::json::object const& json() const { return json_; }
  /// The memory that this rank will need at most; zeros if it could not be predicted.
  MemoryPlan const& plan() const { return plan_; }
  MeshText const& mesh() const { return mesh_; }
  /// The hosts of the ranks.
  std::vector<std::string> const& hosts() const { return hosts_; }
  /// The memory that training will need.
  std::string const& memory_table() const { return memory_; }

  /// Compares computing time with an earlier start's, if the directory's report.json has one, and adds this start,
  /// which continues after `step`, to the list of starts. On rank 0.
  void compare_with(std::filesystem::path const& report, std::int64_t step);
  /// Counts a step, and reads the energy counters now and then.
  void count_step(std::int64_t step, BatchTokens const& tokens);
  void set_parameters(std::int64_t elements) { json_["parameters"] = elements; }

  /// Sets what validations measure, which of it decides, and the best values so far.
  void set_validation(Measure const& best, std::vector<BestValue> const& values);

  /// Gathers the measurements of all ranks; at least one step was made. `typical_length` is the length of a sample.
  /// Returns tables of memory and traffic.
  std::string end(TrainingEngine& engine, Execution& execution, StepTimes const& times, double typical_length,
                  Ending const& ending);

  /// Sets how the run ended. `end` does, too.
  void conclude(Ending const& ending);

 private:
  /// The steps of this start.
  struct Steps {
    std::int64_t first = 0;
    std::int64_t last = 0;
    BatchTokens tokens{};
    std::int64_t tokens_of_first = 0;
  };

  /// Sets the plan, and writes it into the report.
  void plan_memory_with(PlannedPacks const& packs);
  /// The operations per second of this rank's large matrix products; 0 after a start that was too short to measure
  /// them.
  double measure_peak(Execution& execution, double seconds) const;
  /// This rank's measurements: its "seconds" and "communication", as in the report, and others that the report sums up.
  boost::json::object own_measurements(StepTimes const& times, double peak) const;
  void set_ranks(std::vector<boost::json::object> const& measured, std::vector<MemoryReport> const& memory);
  void set_training(StepTimes::Seconds const& seconds);
  void set_efficiency(std::vector<StepTimes::Seconds> const& seconds, double operations, double peak);
  void set_energy(std::vector<boost::json::object> const& measured);

  Setup setup_;
  ModelDescription model_;
  std::vector<std::string> hosts_;  ///< by rank
  boost::json::object json_;
  MemoryPlan plan_;
  MeshText mesh_;
  std::string memory_;
  TrafficByGroup own_traffic_{};
  std::optional<Steps> steps_;
  bool first_on_host_;
  std::optional<EnergyMeter> energy_;  ///< where this rank is its host's first, from the first step
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point sampled_;
};

}  // namespace heddle
