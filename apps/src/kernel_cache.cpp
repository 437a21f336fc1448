#include "kernel_cache.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <heddle/core/error.hpp>
#include <heddle/io/kernel_timings_file.hpp>

namespace heddle {

namespace {

namespace fs = std::filesystem;

bool holds_anything(fs::path const& directory) {
  std::error_code ignored;  // what can not be listed will be complained of by whoever reads it
  return fs::directory_iterator(directory, ignored) != fs::directory_iterator();
}

/// Of a run that has begun: what its kernels.json says.
RunKernels kernels_of_begun(fs::path const& file) {
  RunKernels kernels;
  try {
    TimingsByMachine const all = read_kernel_timings(file);
    auto const own = all.find(machine_name());
    if (own != all.end()) {
      kernels.timings = own->second;
    } else if (!all.empty()) {
      kernels.note =
          fmt::format("{} is of another machine ({}): kernels are chosen by speed", file.string(), all.begin()->first);
    }
  } catch (DataError const& error) {
    kernels.note = fmt::format("{}: kernels are chosen by speed", error.what());
  }
  return kernels;
}

RunKernels find_run_kernels(fs::path const& cache, fs::path const& directory) {
  fs::path const file = directory / "kernels.json";
  std::error_code ignored;
  if (fs::exists(file, ignored) || holds_anything(directory / "checkpoints")) {
    return kernels_of_begun(file);
  }
  RunKernels kernels;
  kernels.timings = read_own_timings(cache, kernels.note);
  if (kernels.note.empty() && !kernels.timings.empty()) {
    kernels.note = fmt::format("kernels are chosen by the times in {}", cache.string());
  }
  kernels.file = to_json(TimingsByMachine{{machine_name(), kernels.timings}});
  return kernels;
}

/// Rank 0's text on every rank.
std::string broadcast_text(std::string text, Communicator const& world) {
  auto const size = static_cast<std::int32_t>(text.size());
  Tensor const shared_size = from_host<std::int32_t>(std::span(&size, 1), {1});
  world.broadcast(shared_size, 0);
  auto const bytes = static_cast<std::size_t>(to_host<std::int32_t>(shared_size).front());
  std::vector<std::int32_t> words(bytes / sizeof(std::int32_t) + 1);
  std::memcpy(words.data(), text.data(), std::min(text.size(), bytes));
  Tensor const shared = from_host<std::int32_t>(words, {static_cast<std::int64_t>(words.size())});
  world.broadcast(shared, 0);
  words = to_host<std::int32_t>(shared);
  text.assign(reinterpret_cast<char const*>(words.data()), bytes);
  return text;
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

KernelTimings read_own_timings(fs::path const& file, std::string& note) {
  if (file.empty()) {
    return {};
  }
  try {
    TimingsByMachine const all = read_kernel_timings(file);
    auto const own = all.find(machine_name());
    return own == all.end() ? KernelTimings() : own->second;
  } catch (DataError const& error) {
    note = fmt::format("not used: {}", error.what());
    return {};
  }
}

RunKernels choose_run_kernels(std::string const& cache, fs::path const& directory, Communicator const& world) {
  RunKernels kernels;
  if (world.rank() == 0) {
    kernels = find_run_kernels(kernel_cache_path(cache), directory);
  }
  std::string const text = broadcast_text(to_json(TimingsByMachine{{"rank 0", kernels.timings}}), world);
  kernels.timings = parse_kernel_timings(text, "rank 0").at("rank 0");
  return kernels;
}

}  // namespace heddle
