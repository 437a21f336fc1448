#include "base.hpp"

#include <fmt/format.h>

#include <heddle/core/base/error.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/io/checkpoint/store.hpp>
#include <heddle/io/tensors/manifest.hpp>
#include <memory>
#include <vector>

namespace heddle {

namespace {

namespace fs = std::filesystem;

/// The checkpoint with this digest at a place, "" if there is none; adds to `problems` why those there are not it.
fs::path find_digest(std::string const& place, std::string const& digest, std::vector<std::string>& problems) {
  try {
    std::vector<CheckpointEntry> const entries = list_checkpoints(place, CheckpointStore::Check::sizes);
    for (CheckpointEntry const& entry : entries) {
      if (entry.problem.empty() && manifest_digest(entry.directory) == digest) {
        return entry.directory;
      }
    }
    problems.push_back(
        fmt::format("{}: {}", place, entries.empty() ? "holds no checkpoints" : "is another checkpoint"));
  } catch (Error const& error) {
    problems.emplace_back(error.what());
  }
  return {};
}

fs::path find_base(Checkpoint const& checkpoint, std::vector<std::string> const& places) {
  CheckpointBase const& base = checkpoint.contents().base;
  std::vector<std::string> problems;
  for (std::string const& place : places) {
    if (fs::path found = find_digest(place, base.digest, problems); !found.empty()) {
      return found;
    }
  }
  throw DataError(
      "{}: the checkpoint that its adapters were trained with, {} with the manifest's digest {}, is not there\n  {}",
      checkpoint.directory().string(), base.checkpoint, base.digest, fmt::join(problems, "\n  "));
}

}  // namespace

void attach_base(Checkpoint& checkpoint, std::string const& elsewhere, Communicator const& world) {
  if (!checkpoint.lacks_base()) {
    return;
  }
  std::vector<std::string> places{checkpoint.contents().base.checkpoint};
  if (!elsewhere.empty()) {
    places.push_back(elsewhere);
  }
  std::string const found = broadcast_text(world, world.rank() == 0 ? find_base(checkpoint, places).string() : "");
  auto base = std::make_shared<Checkpoint>(Checkpoint::open(found, world, {value_key}));
  attach_base(*base, "", world);
  checkpoint.attach(std::move(base));
}

void require_base(Checkpoint const& checkpoint, std::string const& place) {
  if (checkpoint.contents().base.digest.empty()) {
    throw DataError("{}: names no base; expected a run with adapters that train.initialize_from started",
                    checkpoint.directory().string());
  }
  static_cast<void>(find_base(checkpoint, {place}));
}

std::set<std::string> left_to_base(CheckpointBase const& base, WholeModel const& model) {
  std::set<std::string> names;
  model.for_each_parameter([&](ParameterDescription const& parameter) {
    if (!parameter.trained && base.names.contains(parameter.name)) {
      names.insert(parameter.name);
    }
  });
  return names;
}

}  // namespace heddle
