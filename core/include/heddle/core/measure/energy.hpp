#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace heddle {

/// The energy that this machine's processors and their memory take, by the counters of RAPL (running average power
/// limit) that Linux shows below /sys/class/powercap. Other processes count, too.
class EnergyMeter {
 public:
  /// Begins to measure: finds the domains "package-…" and "dram" below `root`.
  explicit EnergyMeter(std::filesystem::path const& root = "/sys/class/powercap");

  /// Reads the counters. Must be called more often than they overflow, which takes some minutes at full power.
  void sample();

  /// Why the energy is not known; "" if it is.
  std::string const& reason() const { return reason_; }
  /// The energy between the begin and the last sample, where it is known.
  double joules() const { return 1e-6 * static_cast<double>(microjoules_); }

 private:
  struct Domain {
    std::filesystem::path counter;
    std::int64_t range = 0;  ///< the greatest value, after which the counter begins again at 0
    std::int64_t last = 0;
  };
  void add_domain(std::filesystem::path const& directory);

  std::vector<Domain> domains_;
  std::int64_t microjoules_ = 0;
  std::string reason_;
};

}  // namespace heddle
