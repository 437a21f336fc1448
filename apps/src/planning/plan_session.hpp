#pragma once

#include <filesystem>
#include <heddle/core/tensor/runtime.hpp>
#include <heddle/dist/planning/kernel_measurement.hpp>
#include <heddle/dist/planning/planner.hpp>
#include <heddle/io/files/measured_times.hpp>
#include <map>
#include <string>
#include <vector>

#include "planned_data.hpp"

namespace heddle {

/// Options of plans.
struct PlanSettings {
  Machines machines;
  std::string network;              ///< "ALPHA,BETA", "measured", or "": measured if there is a file, otherwise assumed
  double measure_seconds = 5;       ///< to spend on kernels whose times are not known
  std::int64_t vocabulary = 10000;  ///< pieces, where the configuration names no data
  bool keep_times = true;           ///< in a file, for the next plan
  bool remeasure = false;           ///< also kernels whose times are known
};

/// Everything that a plan of a configuration needs: data, kernels, measured times, network.
class PlanSession {
 public:
  /// Registries: as for training. Opens the data. Throws as training would. Collective over `world`, whose ranks
  /// measure kernels together.
  PlanSession(Config const& config, Registries& registries, Execution& execution, PlanSettings const& settings,
              Communicator const& world = Communicator::self());

  Planner& planner() { return *planner_; }
  PlannedData const& data() const { return *data_; }
  ModelDescription const& model() const { return model_; }
  NetworkModel const& network() const { return network_; }
  /// Lines for the user: what was measured, and what is assumed.
  std::vector<std::string> const& notes() const { return notes_; }

  /// Measures the kernels of layouts whose times are not known, for at most PlanSettings::measure_seconds, and keeps
  /// the times if PlanSettings::keep_times. A single process only adds times that are missing; times measured by
  /// several ranks are kept. Collective over the world.
  MeasuredLayouts measure(std::vector<LayoutChoice> const& layouts);
  /// Every layout of the machines' ranks that the model allows.
  std::vector<LayoutChoice> candidates() const;

 private:
  void take_network(NetworkTimes const& measured);
  void take_times(std::map<std::string, TimedCalls>& measured, KernelTimings const& timings);
  /// Times that are old or were taken on a busy machine are measured again, where this process can.
  void forget_untrusted_times();
  void note_measurement(MeasuredLayouts const& count);

  Config const& config_;
  Registries const& registries_;
  Execution& execution_;
  PlanSettings settings_;
  Communicator world_;
  std::filesystem::path cache_;  ///< file of measured times; empty: none
  ModelDescription model_;
  std::unique_ptr<PlannedData> data_;
  NetworkModel network_ = NetworkModel::assumed();
  std::string circumstances_;
  KernelTimes times_;
  double now_ = 0;                  ///< seconds since 1970
  bool times_need_others_ = false;  ///< several ranks measured them together, and this is a single process
  std::optional<Planner> planner_;
  std::vector<std::string> notes_;
};

}  // namespace heddle
