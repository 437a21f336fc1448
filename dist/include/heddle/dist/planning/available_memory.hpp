#pragma once

#include <cstdint>
#include <filesystem>
#include <heddle/core/parallel/communicator.hpp>
#include <heddle/dist/planning/memory_plan.hpp>
#include <limits>
#include <string>

namespace heddle {

/// Memory that processes can still take, in bytes.
struct AvailableMemory {
  static constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max();

  std::int64_t host = unlimited;   ///< memory of the machine; unlimited: unknown
  std::int64_t group = unlimited;  ///< memory of the control group with the tightest limit
  std::string group_name{};        ///< empty: no limit
};

/// The memory that this process can still take, as the system reports it: what is available on the machine, and the
/// limits of its control groups (versions 1 and 2), of which cached files do not count as taken. `root` is the
/// directory of proc and sys.
AvailableMemory available_memory(std::filesystem::path const& root = "/");

/// The largest resident memory of this process so far, in bytes, as the system reports it; 0 if it does not.
std::int64_t peak_resident_bytes();

/// Throws ConfigError on every rank if the ranks of a machine, or of a control group, need more memory (with the
/// margin) than is available there; names the place, how many ranks share it, the plan's parts and what would help.
/// Collective over `world`; no rank may have taken the planned memory before.
void require_memory(Communicator const& world, MemoryNeed const& needed, AvailableMemory const& available);

}  // namespace heddle
