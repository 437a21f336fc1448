#include "newest_step.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <fstream>
#include <heddle/io/checkpoint/store.hpp>
#include <system_error>

namespace heddle {

std::int64_t step_of_line(std::string const& line) {
  boost::json::error_code problem;
  boost::json::value const value = boost::json::parse(line, problem);
  auto const* const object = problem ? nullptr : value.if_object();
  auto const* const step = object != nullptr ? object->if_contains("step") : nullptr;
  auto const* const number = step != nullptr ? step->if_int64() : nullptr;
  return number != nullptr ? *number : -1;
}

std::int64_t newest_step(std::filesystem::path const& run_directory) {
  // Lines are in the order of their steps, and the last ones suffice; they have at most a few kilobytes.
  constexpr std::streamoff enough = 1 << 16;
  std::int64_t newest = -1;
  std::ifstream metrics(run_directory / metrics_name, std::ios::ate);
  if (metrics) {
    metrics.seekg(std::max<std::streamoff>(metrics.tellg() - enough, 0));
    for (std::string line; std::getline(metrics, line);) {
      newest = std::max(newest, step_of_line(line));
    }
  }
  std::error_code none;
  for (auto const& entry : std::filesystem::directory_iterator(run_directory / "checkpoints", none)) {
    newest = std::max(newest, checkpoint_step(entry.path().filename().string()).value_or(-1));
  }
  return newest;
}

}  // namespace heddle
