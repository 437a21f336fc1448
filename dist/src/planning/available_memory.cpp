#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/host_name.hpp>
#include <heddle/core/base/parse_number.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/dist/planning/available_memory.hpp>
#include <map>
#include <optional>

namespace heddle {

namespace {

using Path = std::filesystem::path;

/// The number after `name` in a file of lines "name number"; nothing if there is none. Without a name, the file's only
/// word.
std::optional<std::int64_t> number_in(Path const& file, std::string_view name = "") {
  std::ifstream stream(file);
  std::string word;
  while (!name.empty() && stream >> word && word != name) {
  }
  return stream >> word ? parse_number<std::int64_t>(word) : std::nullopt;  // version 2 writes "max"
}

/// The files of a version of control groups.
struct GroupFiles {
  char const *directory, *limit, *usage, *cached;
};
constexpr GroupFiles version_2{"sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"};
constexpr GroupFiles version_1{"sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                               "total_inactive_file"};

/// Without a limit, version 1 writes about 2^63 and version 2 a word.
constexpr std::int64_t no_limit = std::int64_t{1} << 62;

/// Lowers `memory` to the limits of a group and of those around it.
void limit_by_group(AvailableMemory& memory, Path const& root, GroupFiles const& files, Path group) {
  while (true) {
    Path const directory = root / files.directory / group.relative_path();
    auto const limit = number_in(directory / files.limit);
    auto const usage = number_in(directory / files.usage);
    if (limit && *limit < no_limit && usage) {
      std::int64_t const cached = number_in(directory / "memory.stat", files.cached).value_or(0);
      std::int64_t const free = std::max<std::int64_t>(0, *limit - std::max<std::int64_t>(0, *usage - cached));
      if (free < memory.group) {
        memory.group = free;
        memory.group_name = group.string();
      }
    }
    if (!group.has_relative_path()) {
      return;
    }
    group = group.parent_path();
  }
}

/// The ranks that share a limit.
struct Sharers {
  MemorySum needed;
  std::int64_t available = AvailableMemory::unlimited;

  void add(MemoryNeed const& more, std::int64_t limit) {
    needed.add(more);
    available = std::min(available, limit);  // measured at slightly different times
  }
};

[[noreturn]] void refuse(std::string const& place, Sharers const& sharers) {
  auto const& [ranks, use, packs, scratch, margin] = sharers.needed;
  throw ConfigError(
      "this run does not fit into the memory of {}: {} there need{} {} (parameters {}, gradients {}, optimizer state "
      "{}, kernels {}, activations {}, packs of samples {}, kernels' scratch {}, a margin of {}), and {} are "
      "available. train.micro_batch_tokens lowers the activations and the scratch, train.batch_tokens the packs, "
      "parallel.tensor and parallel.pipeline divide parameters, parallel.shard_optimizer the optimizer state, "
      "parallel.shard_parameters all three; other "
      "hosts or fewer ranks on each help, too. The activations are those of the largest micro-batches that can occur: "
      "with train.reserve_memory = false the run starts without this check",
      place, counted(ranks, "rank"), ranks == 1 ? "s" : "", readable_size(sharers.needed.total()),
      readable_size(use.parameters), readable_size(use.gradients), readable_size(use.state), readable_size(use.kernels),
      readable_size(use.activations), readable_size(packs), readable_size(scratch), readable_size(margin),
      readable_size(sharers.available));
}

}  // namespace

AvailableMemory available_memory(Path const& root) {
  AvailableMemory memory;
  if (auto const kibibytes = number_in(root / "proc/meminfo", "MemAvailable:")) {
    memory.host = *kibibytes * 1024;
  }
  // Lines are "number:controllers:group"; version 2 has no controllers.
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    std::size_t const first = line.find(':');
    std::size_t const second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) {
      continue;
    }
    std::string const controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controllers == ",,") {
      limit_by_group(memory, root, version_2, line.substr(second + 1));
    } else if (controllers.find(",memory,") != std::string::npos) {
      limit_by_group(memory, root, version_1, line.substr(second + 1));
    }
  }
  return memory;
}

std::int64_t peak_resident_bytes() {
  return number_in("/proc/self/status", "VmHWM:").value_or(0) * 1024;
}

void require_memory(Communicator const& world, MemoryNeed const& needed, AvailableMemory const& available) {
  struct Own {
    MemoryNeed needed;
    std::int64_t host, group;
  };
  auto const all = gather_values(world, Own{needed, available.host, available.group});
  auto const host_names = gather_texts(world, host_name());
  auto const group_names = gather_texts(world, available.group_name);
  std::map<std::string, Sharers> places;
  for (int rank = 0; rank < world.size(); ++rank) {
    auto const index = static_cast<std::size_t>(rank);
    Own const& own = all[index];
    places["host " + host_names[index]].add(own.needed, own.host);
    if (own.group != AvailableMemory::unlimited) {
      places[fmt::format("control group {} of host {}", group_names[index], host_names[index])].add(own.needed,
                                                                                                    own.group);
    }
  }
  for (auto const& [place, sharers] : places) {
    if (sharers.needed.total() > sharers.available) {
      refuse(place, sharers);
    }
  }
}

}  // namespace heddle
