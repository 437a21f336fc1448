#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace heddle {

/// The energy that this machine takes: on HPE Cray nodes the whole node's, by the counter of its controller; elsewhere
/// the processors' and their memory's, by the counters of RAPL (running average power limit) that Linux shows. Other
/// processes count, too.
class EnergyMeter {
 public:
  struct Directories {
    std::filesystem::path node = "/sys/cray/pm_counters";
    std::filesystem::path powercap = "/sys/class/powercap";
  };

  /// Starts to measure: with the file "energy" in `node` or, where that cannot be read, with the domains "package-…"
  /// and "dram" below `powercap`.
  explicit EnergyMeter(Directories const& places);
  EnergyMeter() : EnergyMeter(Directories()) {}

  /// Reads the counters. Must be called more often than they overflow, which takes some minutes at full power.
  void sample();

  /// The kind of counters: "RAPL" or "the nodes' counters".
  std::string const& source() const { return source_; }
  /// Why the energy between the start and the last sample is not known; "" if it is. Counters that do not advance,
  /// as on some virtual machines, are not used.
  std::string reason() const;
  /// The energy between the start and the last sample, where it is known.
  double joules() const { return 1e-6 * static_cast<double>(microjoules_); }

 private:
  struct Domain {
    std::filesystem::path counter;
    std::int64_t range = 0;  ///< the maximum, after which the counter starts again at 0; 0: it does not
    std::int64_t last = 0;
    std::int64_t microjoules = 1;  ///< the counter's unit
  };
  void find_domains(std::filesystem::path const& powercap);
  void add_domain(std::filesystem::path const& directory);

  std::vector<Domain> domains_;
  std::int64_t microjoules_ = 0;
  std::string source_ = "RAPL";
  std::string reason_;
};

}  // namespace heddle
