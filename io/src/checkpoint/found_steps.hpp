#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace heddle {

/// An entry of a checkpoints directory whose name is that of a checkpoint.
struct FoundStep {
  std::int64_t step;
  std::filesystem::path directory;
};

/// All of them, oldest first; an empty list if there is no such directory. Throws DataError if something else has its
/// name.
std::vector<FoundStep> find_steps(std::filesystem::path const& directory);

/// The newest of these steps that is not after `step`; nothing if that is nothing.
std::optional<std::int64_t> newest_up_to(std::optional<std::int64_t> step, std::vector<FoundStep> const& steps);

}  // namespace heddle
