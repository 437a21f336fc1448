#include "cache.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <heddle/core/base/error.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/io/checkpoint/store.hpp>
#include <heddle/io/files/kernel_timings_file.hpp>

namespace heddle {

namespace {

namespace fs = std::filesystem;

/// A run without any checkpoint starts from the beginning, even if it has left other files.
bool has_checkpoints(fs::path const& directory) {
  std::error_code ignored;  // the code that reads the directory reports the error
  fs::directory_iterator const entries(directory / "checkpoints", ignored);
  return std::any_of(begin(entries), end(entries), [](fs::directory_entry const& entry) {
    return checkpoint_step(entry.path().filename().string()).has_value();
  });
}

/// For a run that has begun: the content of its kernels.json.
RunKernels kernels_of_begun(fs::path const& file, std::string const& here) {
  RunKernels kernels;
  try {
    TimingsByMachine const all = read_kernel_timings(file);
    if (auto const own = all.find(here); own != all.end()) {
      kernels.timings = own->second;
    } else if (all.empty()) {
      kernels.notes.push_back(fmt::format(
          "{} is gone: kernels are chosen by speed, and the run may continue with other last bits than it would "
          "have had",
          file.string()));
    } else {
      kernels.notes.push_back(fmt::format("{} was written in other circumstances ({}): kernels are chosen by speed",
                                          file.string(), machine_difference(all.begin()->first, here)));
    }
  } catch (DataError const& error) {
    kernels.notes.push_back(fmt::format("{}: kernels are chosen by speed", error.what()));
  }
  return kernels;
}

RunKernels find_run_kernels(fs::path const& cache, fs::path const& directory, std::string const& machine) {
  if (has_checkpoints(directory)) {
    return kernels_of_begun(directory / "kernels.json", machine);
  }
  RunKernels kernels;
  kernels.timings = read_own_timings(cache, machine, kernels.notes);
  if (!kernels.timings.empty()) {
    kernels.notes.push_back(
        fmt::format("kernels are chosen by the times in {}, where it has the problem", cache.string()));
  }
  kernels.file = to_json(TimingsByMachine{{machine, kernels.timings}});
  return kernels;
}

/// For ranks on different machines: each chooses among the kernels that its machine has, and by their speeds there.
/// Empty if this makes no difference. Collective over `world`.
std::string note_of_different_ranks(KernelChoices const& choices, std::string const& machine,
                                    Communicator const& world) {
  auto const& chosen = choices.operations();
  bool const any_auto = std::any_of(chosen.begin(), chosen.end(), [](KernelChoices::Operation const& each) {
    return each.second.implementation == "auto";
  });
  if (world.size() == 1 || !any_auto) {
    return "";
  }
  auto const machines = gather_texts(world, machine);
  auto const other = std::ranges::find_if(machines, [&](auto const& each) { return each != machines.front(); });
  if (other == machines.end()) {
    return "";
  }
  return fmt::format(
      "rank {} runs on another kind of machine than rank 0 ({}): `auto` may choose other kernels on it, and the common "
      "values of tensor ranks or replicas may diverge (exit code 70); name kernels in [kernels] that every rank has",
      other - machines.begin(), machine_difference(*other, machines.front()));
}

}  // namespace

fs::path kernel_cache_path(std::string const& cache) {
  if (cache != "auto") {
    return cache;
  }
  char const* const base = std::getenv("XDG_CACHE_HOME");
  if (base != nullptr && *base == '/') {
    return fs::path(base) / "heddle/kernels.json";
  }
  char const* const home = std::getenv("HOME");
  return home == nullptr || *home == '\0' ? fs::path() : fs::path(home) / ".cache/heddle/kernels.json";
}

KernelTimings read_own_timings(fs::path const& file, std::string const& machine, std::vector<std::string>& notes) {
  if (file.empty()) {
    return {};
  }
  try {
    TimingsByMachine const all = read_kernel_timings(file);
    auto const own = all.find(machine);
    return own == all.end() ? KernelTimings() : own->second;
  } catch (DataError const& error) {
    notes.push_back(fmt::format("not used: {}", error.what()));
    return {};
  }
}

RunKernels choose_run_kernels(KernelChoices const& choices, fs::path const& directory, std::string const& machine,
                              Communicator const& world) {
  RunKernels kernels;
  if (world.rank() == 0) {
    kernels = find_run_kernels(kernel_cache_path(choices.cache), directory, machine);
  }
  std::string const text = broadcast_text(world, to_json(TimingsByMachine{{"rank 0", kernels.timings}}));
  kernels.timings = parse_kernel_timings(text, "rank 0").at("rank 0");
  if (std::string note = note_of_different_ranks(choices, machine, world); !note.empty()) {
    kernels.notes.push_back(std::move(note));
  }
  return kernels;
}

}  // namespace heddle
