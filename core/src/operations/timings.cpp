#include <fmt/format.h>

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <heddle/core/base/library.hpp>
#include <heddle/core/base/random.hpp>
#include <heddle/core/operations/timings.hpp>
#include <heddle/core/tensor/tensor.hpp>
#include <set>
#include <sstream>

namespace heddle {

namespace {

/// The other flags change with the version of the system.
bool is_arithmetic(std::string const& flag) {
  constexpr std::array kinds{"sse", "avx", "fma", "f16c", "amx", "asimd", "sve", "bf16", "i8mm"};
  return std::any_of(kinds.begin(), kinds.end(), [&](char const* kind) { return flag.starts_with(kind); });
}

bool is_number(std::string const& word) {
  return std::all_of(word.begin(), word.end(), [](char letter) { return letter >= '0' && letter <= '9'; });
}

std::vector<std::string> parts_of(std::string const& name) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (auto end = name.find(", "); end != std::string::npos; end = name.find(", ", begin)) {
    parts.push_back(name.substr(begin, end - begin));
    begin = end + 2;
  }
  parts.push_back(name.substr(begin));
  return parts;
}

}  // namespace

std::string measured_choice(TimesByName const& times, std::vector<std::string> const& names) {
  std::string choice = names.front();
  auto const known = times.find(choice);
  double min = known == times.end() ? 0 : 0.97 * known->second;
  for (std::string const& name : names) {
    auto const found = times.find(name);
    if (found != times.end() && found->second < min) {
      choice = name;
      min = found->second;
    }
  }
  return choice;
}

std::string describe_cpu(std::istream& cpuinfo) {
  constexpr std::array names{"model name", "cpu", "CPU implementer", "CPU part"};
  constexpr std::array kinds{"cpu family", "model", "flags", "Features"};
  std::string name;
  std::set<std::string> features;
  for (std::string line; std::getline(cpuinfo, line) && !line.empty();) {  // a blank line ends the first processor
    auto const colon = std::min(line.find(':'), line.size());
    std::string const key = line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1);
    std::istringstream words(line.substr(std::min(colon + 1, line.size())));
    bool const is_name = std::find(names.begin(), names.end(), key) != names.end();
    bool const is_kind = std::find(kinds.begin(), kinds.end(), key) != kinds.end();
    for (std::string word; (is_name || is_kind) && words >> word;) {
      if (is_name) {
        name += (name.empty() ? "" : " ") + word;
      } else if (is_number(word) || is_arithmetic(word)) {
        features.insert(is_number(word) ? fmt::format("{}={}", key, word) : word);
      }
    }
  }
  std::string text;
  for (std::string const& feature : features) {
    text += feature + " ";
  }
  return fmt::format("{} (kind {:08x})", name.empty() ? "unknown processor" : name, random_key(0, text) & 0xffffffffU);
}

int compute_threads() {
  char const* const setting = std::getenv("OMP_NUM_THREADS");
  return std::max(Kokkos::DefaultExecutionSpace().concurrency(), setting == nullptr ? 1 : std::atoi(setting));
}

std::string machine_name(CpuLevel level) {
  std::ifstream cpuinfo("/proc/cpuinfo");
  int const threads = compute_threads();
  bool const emulated = std::is_same_v<Kokkos::DefaultExecutionSpace::memory_space, Kokkos::HostSpace> &&
                        kernel_memory_space() == MemorySpace::device;
  return fmt::format("{}, {}, {} thread{}, {}{}", describe_cpu(cpuinfo), name_of(level), threads,
                     threads == 1 ? "" : "s", emulated ? "emulated device, " : "", abi_tag());
}

std::string machine_difference(std::string const& there, std::string const& here) {
  std::vector<std::string> others = parts_of(there);
  std::vector<std::string> own = parts_of(here);
  if (others.size() == own.size()) {
    std::size_t kept = 0;
    for (std::size_t part = 0; part < own.size(); ++part) {
      if (others[part] != own[part]) {
        std::swap(others[kept], others[part]);
        std::swap(own[kept++], own[part]);
      }
    }
    others.resize(kept), own.resize(kept);
  }
  return fmt::format("\"{}\" there, \"{}\" here", fmt::join(others, ", "), fmt::join(own, ", "));
}

}  // namespace heddle
