#pragma once

#include <chrono>
#include <filesystem>
#include <heddle/core/layers/registries.hpp>
#include <heddle/core/measure/energy.hpp>
#include <heddle/dist/training/training_engine.hpp>
#include <optional>
#include <string>

#include "run_facts.hpp"

namespace heddle {

/// A training run's report on its ranks: the mesh, their memory, the traffic of their groups, and how well they were
/// used. `gather` and `end` are collective over the world; texts are the same on every rank and end with a line break.
class RunReport {
 public:
  struct Setup {
    Config const& config;
    Registries const& registries;
    ParallelState const& parallel;
    VocabularySizes vocabulary;
    std::string program;  ///< with its version
    std::string command;
  };

  /// Rehearses this rank's steps with the largest of its micro-batches (see plan_memory). Setup's references must
  /// outlive the report.
  static RunReport gather(Setup const& setup, PlannedPacks const& packs);

  /// The memory that this rank will need at most; zeros if it could not be predicted.
  MemoryPlan const& plan() const { return plan_; }
  /// The mesh in one line, with warnings if there are any.
  std::string const& layout_line() const { return layout_line_; }
  /// Of tensor groups that span hosts; "" where none does.
  std::string const& layout_warning() const { return layout_warning_; }
  /// A table of the stages and ranks with their parts; "" for one rank.
  std::string const& layout_table() const { return layout_table_; }
  /// The memory that training will need.
  std::string const& memory_table() const { return memory_; }

  /// Compares computing time with that of an earlier start, if the directory's report.json has one. On rank 0.
  void compare_with(std::filesystem::path const& report);
  /// Counts a step, and reads the energy counters now and then.
  void count_step(std::int64_t step, BatchTokens const& tokens);
  void set_parameters(std::int64_t elements) { facts_.parameters = elements; }

  struct Outcome {
    std::string state;  ///< "done"
    std::int64_t best_step = 0;
    double best_valid_loss = 0;
  };
  /// Gathers what the ranks measured; at least one step was made. `typical_length` is that of a sample. Returns tables
  /// of memory and traffic.
  std::string end(TrainingEngine& engine, Execution& execution, StepTimes const& times, double typical_length,
                  Outcome const& outcome);

  /// Sets how the run ended. `end` does, too.
  void conclude(Outcome const& outcome);

  RunFacts const& facts() const { return facts_; }

 private:
  explicit RunReport(Setup const& setup);

  void gather_ranks(TrainingEngine& engine, StepTimes const& times);
  void gather_traffic(StepTimes const& times);
  void measure_peak(Execution& execution);
  void gather_energy();
  /// Computing, of all ranks together.
  double seconds_per_token() const;

  Setup setup_;
  RunFacts facts_;
  MemoryPlan plan_;
  std::string layout_line_;
  std::string layout_warning_;
  std::string layout_table_;
  std::string memory_;
  TrafficByGroup own_traffic_{};
  BatchTokens tokens_;  ///< of all steps
  bool first_on_host_;
  std::optional<EnergyMeter> energy_;  ///< where this rank is its host's first, from the first step
  std::chrono::steady_clock::time_point sampled_;
};

}  // namespace heddle
