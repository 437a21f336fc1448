#include <fmt/format.h>

#include <fstream>
#include <heddle/core/measure/energy.hpp>
#include <optional>
#include <system_error>

namespace heddle {

namespace {

namespace fs = std::filesystem;

std::optional<std::int64_t> number_in(fs::path const& file) {
  std::int64_t number = 0;
  if (std::ifstream(file) >> number && number >= 0) {
    return number;
  }
  return std::nullopt;
}

/// Directories such as intel-rapl:0, or below one of those intel-rapl:0:1, have their own energy. Some of them also
/// appear as intel-rapl-mmio:0, which is the same.
bool is_domain(fs::path const& directory) {
  return directory.filename().string().starts_with("intel-rapl:");
}

std::vector<fs::path> domains_in(fs::path const& directory) {
  std::vector<fs::path> found;
  std::error_code problem;
  for (auto const& entry : fs::directory_iterator(directory, problem)) {
    if (is_domain(entry.path())) {
      found.push_back(entry.path());
    }
  }
  return found;
}

std::string name_of_domain(fs::path const& directory) {
  std::string name;
  std::ifstream(directory / "name") >> name;
  return name;
}

}  // namespace

EnergyMeter::EnergyMeter(Directories const& places) {
  fs::path const counter = places.node / "energy";  // "1234567 J 1700000000000000 us"
  if (auto const joules = number_in(counter)) {
    source_ = "the nodes' counters";
    domains_.push_back({counter, 0, *joules, 1'000'000});
  } else {
    find_domains(places.powercap);
  }
}

void EnergyMeter::find_domains(fs::path const& powercap) {
  // A machine's domains are listed twice where links to those inside a package stand beside it.
  for (fs::path const& package : domains_in(powercap)) {
    if (name_of_domain(package).starts_with("package")) {
      add_domain(package);
      for (fs::path const& part : domains_in(package)) {
        if (name_of_domain(part) == "dram") {
          add_domain(part);
        }
      }
    }
  }
  if (domains_.empty() && reason_.empty()) {
    reason_ = fmt::format("no counters of energy in {}", powercap.string());
  }
}

void EnergyMeter::add_domain(fs::path const& directory) {
  auto const value = number_in(directory / "energy_uj");
  auto const range = number_in(directory / "max_energy_range_uj");
  if (!value || !range) {
    reason_ = fmt::format("{} cannot be read", (directory / (value ? "max_energy_range_uj" : "energy_uj")).string());
    return;
  }
  domains_.push_back({directory / "energy_uj", *range, *value});
}

void EnergyMeter::sample() {
  for (Domain& domain : domains_) {
    auto const value = number_in(domain.counter);
    if (!value) {
      reason_ = fmt::format("{} cannot be read any more", domain.counter.string());
      return;
    }
    // A counter that is smaller than before has restarted at 0.
    if (*value < domain.last && domain.range == 0) {
      reason_ = fmt::format("{} has restarted", domain.counter.string());
      return;
    }
    microjoules_ += domain.microjoules * (*value - domain.last + (*value < domain.last ? domain.range : 0));
    domain.last = *value;
  }
}

std::string EnergyMeter::reason() const {
  return reason_.empty() && microjoules_ == 0 ? fmt::format("the energy by {} did not advance", source_) : reason_;
}

}  // namespace heddle
