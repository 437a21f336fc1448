#include "kernel_cache.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <heddle/core/base/error.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/io/checkpoint/store.hpp>

namespace heddle {

namespace {

namespace fs = std::filesystem;

/// A run without any checkpoint starts from scratch, even if it has left other files.
bool has_checkpoints(fs::path const& directory) {
  std::error_code ignored;  // the code that reads the directory reports the error
  fs::directory_iterator const entries(directory / "checkpoints", ignored);
  return std::any_of(begin(entries), end(entries), [](fs::directory_entry const& entry) {
    return checkpoint_step(entry.path().filename().string()).has_value();
  });
}

/// The content of a started run's kernels.json.
RunKernels kernels_of_started(fs::path const& file, std::string const& here) {
  RunKernels kernels;
  try {
    auto const all = read_measured_times(file).kernels;
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
    return kernels_of_started(directory / "kernels.json", machine);
  }
  RunKernels kernels;
  kernels.timings = read_cache(cache, kernels.notes).kernels[machine];
  if (!kernels.timings.empty()) {
    kernels.notes.push_back(
        fmt::format("kernels are chosen by the times in {}, where it has the problem", cache.string()));
  }
  kernels.file = to_json(MeasuredTimes{.kernels = {{machine, kernels.timings}}});
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

MeasuredTimes read_cache(fs::path const& file, std::vector<std::string>& notes) {
  try {
    return file.empty() ? MeasuredTimes() : read_measured_times(file);
  } catch (DataError const& error) {
    notes.push_back(fmt::format("not used: {}", error.what()));
    return {};
  }
}

std::string keep_in_cache(fs::path const& file, MeasuredTimes const& times) {
  if (file.empty()) {
    return "not kept: kernels.cache is \"\", or there is neither XDG_CACHE_HOME nor HOME for it";
  }
  try {
    add_measured_times(file, times);
    return fmt::format("kept in {}", file.string());
  } catch (Error const& error) {
    return fmt::format("not kept: {}; set kernels.cache or XDG_CACHE_HOME", error.what());
  }
}

RunKernels choose_run_kernels(KernelChoices const& choices, fs::path const& directory, std::string const& machine,
                              Communicator const& world) {
  RunKernels kernels;
  if (world.rank() == 0) {
    kernels = find_run_kernels(kernel_cache_path(choices.cache), directory, machine);
  }
  std::string const text = broadcast_text(world, to_json(MeasuredTimes{.kernels = {{"rank 0", kernels.timings}}}));
  kernels.timings = parse_measured_times(text, "rank 0").kernels["rank 0"];
  if (std::string note = note_of_different_ranks(choices, machine, world); !note.empty()) {
    kernels.notes.push_back(std::move(note));
  }
  return kernels;
}

}  // namespace heddle
