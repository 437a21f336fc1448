#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <heddle/core/base/processors.hpp>
#include <string>

namespace heddle {
namespace {

/// The processors that this thread may use; none where they are unknown.
cpu_set_t affinity() {
  cpu_set_t set;
  CPU_ZERO(&set);
  ::sched_getaffinity(0, sizeof set, &set);
  return set;
}

/// The processor time that the control group of this path and those around it allow, in processors.
double group_processors(std::filesystem::path path, double processors) {
  std::filesystem::path const root = "/sys/fs/cgroup";
  for (;; path = path.parent_path()) {
    std::string quota;  // "max", or microseconds in each period
    double period = 0;
    std::ifstream limit(root / path.relative_path() / "cpu.max");
    if (limit >> quota >> period && quota != "max" && period > 0) {
      processors = std::min(processors, std::strtod(quota.c_str(), nullptr) / period);
    }
    if (!path.has_relative_path()) {
      return processors;
    }
  }
}

}  // namespace

std::string processors_of_thread() {
  cpu_set_t const set = affinity();
  std::string processors;
  for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
    processors += CPU_ISSET(processor, &set) ? std::to_string(processor) + " " : "";
  }
  return processors;
}

int usable_processors() {
  cpu_set_t const set = affinity();
  double processors = std::max(1, CPU_COUNT(&set));
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (line.starts_with("0::/")) {
      processors = group_processors(line.substr(3), processors);
    }
  }
  return std::max(1, static_cast<int>(std::ceil(processors)));
}

}  // namespace heddle
