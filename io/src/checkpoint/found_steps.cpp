#include "found_steps.hpp"

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/io/checkpoint/store.hpp>

namespace heddle {

namespace fs = std::filesystem;

std::vector<FoundStep> find_steps(fs::path const& directory) {
  std::vector<FoundStep> steps;
  if (!fs::exists(fs::symlink_status(directory))) {
    return steps;
  }
  if (!fs::is_directory(directory)) {  // nor a link to one
    throw DataError(directory.string() + ": is no directory; move it away");
  }
  for (auto const& entry : fs::directory_iterator(directory)) {
    if (auto const step = checkpoint_step(entry.path().filename().string())) {
      steps.push_back({*step, entry.path()});
    }
  }
  std::ranges::sort(steps, {}, &FoundStep::step);
  return steps;
}

std::optional<std::int64_t> newest_up_to(std::optional<std::int64_t> step, std::vector<FoundStep> const& steps) {
  std::optional<std::int64_t> newest;
  for (FoundStep const& each : steps) {
    if (step && each.step <= *step) {
      newest = each.step;
    }
  }
  return newest;
}

}  // namespace heddle
