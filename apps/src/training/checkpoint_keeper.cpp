#include "checkpoint_keeper.hpp"

#include <fmt/format.h>

#include <heddle/core/base/error.hpp>
#include <heddle/core/parallel/host_values.hpp>

namespace heddle {

namespace {

/// The one being written, and the one before.
constexpr int checkpoints_in_memory = 2;

}  // namespace

CheckpointKeeper::CheckpointKeeper(Setup const& setup)
    : setup_(setup), disk_(setup.directory / "checkpoints", setup.config.checkpoint.keep) {
  if (setup.config.checkpoint.async) {
    throw ConfigError("checkpoint.async = true is not supported yet");
  }
}

void CheckpointKeeper::find_memory(RunDirectory const* directory) {
  MemoryStore::Place place{.root = setup_.config.checkpoint.memory_directory, .run = {}, .identity = {}};
  if (directory != nullptr) {
    place.run = std::filesystem::canonical(directory->path());
    place.identity = uses_memory() ? directory->identity() : "";
  }
  memory_.emplace(setup_.world, place);
}

void CheckpointKeeper::open(RunDirectory const* directory, std::vector<StreamedTensor> const& tensors) {
  find_memory(directory);
  if (!uses_memory()) {
    memory_->remove();
    return;
  }
  memory_->remove_strangers();
  memory_->require_room(tensors, checkpoints_in_memory);
}

std::optional<Checkpoint> CheckpointKeeper::newest_on_disk(CheckpointStore::Report const& report) {
  std::optional<Checkpoint> found = disk_.newest_verified(report, setup_.world);
  committed_step_ = found ? found->state().step : -1;
  return found;
}

std::optional<Checkpoint> CheckpointKeeper::newest(CheckpointStore::Report const& report) {
  std::optional<Checkpoint> memory = uses_memory() ? memory_->newest_verified(report) : std::nullopt;
  if (!memory) {
    return newest_on_disk(report);
  }
  bool const speaks = setup_.world.rank() == 0;
  std::int64_t const step = memory->state().step;
  std::int64_t const on_disk = broadcast_value(setup_.world, speaks ? disk_.newest_step().value_or(-1) : -1);
  if (on_disk > step) {
    try {
      if (auto disk = newest_on_disk(report); disk && disk->state().step > step) {
        return disk;
      }
    } catch (DataError const& error) {
      if (speaks) {
        report(error.what());
      }
    }
  }
  // One on disk that is not older was not verified: the next save does that.
  committed_step_ = on_disk < step ? on_disk : -1;
  if (speaks) {
    report(fmt::format("going on from step {} in memory; the newest on disk is {}", step,
                       on_disk < 0 ? "none" : fmt::format("of step {}", on_disk)));
  }
  return memory;
}

Checkpoint CheckpointKeeper::go_back(std::int64_t step, CheckpointStore::Report const& report) {
  Checkpoint found = disk_.go_back(step, report, setup_.world);
  memory_->remove();
  committed_step_ = step;
  return found;
}

CheckpointKeeper::Request CheckpointKeeper::left_of(Request const& asked, std::int64_t step) const {
  return {asked.disk && committed_step_ != step, asked.best, asked.memory && uses_memory()};
}

std::vector<std::string> CheckpointKeeper::keep(CheckpointContents const& contents, TensorStream& tensors,
                                                Request const& request) {
  std::vector<std::string> notes;
  if (request.memory) {
    keep_in_memory(contents, tensors, notes);
  }
  if (request.disk) {
    CommitResult const result = disk_.commit(setup_.world, contents, tensors, setup_.config.checkpoint.writers);
    notes.insert(notes.end(), result.notes.begin(), result.notes.end());
    committed_step_ = contents.state.step;
  }
  if (request.best && setup_.world.rank() == 0) {
    disk_.mark_best(contents.state.step);
  }
  return notes;
}

void CheckpointKeeper::keep_in_memory(CheckpointContents const& contents, TensorStream& tensors,
                                      std::vector<std::string>& notes) {
  try {
    memory_->commit(contents, tensors, 0);
    memory_failed_ = false;
  } catch (Error const& error) {
    if (error.code() == ExitCode::loss_not_finite) {
      throw;
    }
    if (!memory_failed_) {
      notes.push_back(fmt::format("note: {}; if the next ones fail, too, that is not printed", error.what()));
    }
    memory_failed_ = true;
  }
}

void CheckpointKeeper::start_over(RunDirectory const* directory) {
  memory_->remove();
  find_memory(directory);
  committed_step_ = -1;
}

void CheckpointKeeper::close() {
  memory_->remove();
}

}  // namespace heddle
