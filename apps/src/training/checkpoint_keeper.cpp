#include "checkpoint_keeper.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <thread>
#include <utility>

namespace heddle {

CheckpointKeeper::CheckpointKeeper(Setup const& setup)
    : setup_(setup), disk_(setup.directory / "checkpoints", setup.config.checkpoint.keep) {}

void CheckpointKeeper::find_memory(RunDirectory const* directory) {
  MemoryStore::Place place{.root = setup_.config.checkpoint.memory_directory, .run = {}, .identity = {}};
  if (directory != nullptr) {
    place.run = std::filesystem::canonical(directory->path());
    place.identity = uses_memory() ? directory->identity() : "";
  }
  memory_.emplace(setup_.world, place);
}

void CheckpointKeeper::open(RunDirectory const* directory, std::vector<StreamedTensor> const& tensors,
                            std::int64_t origin_bytes) {
  find_memory(directory);
  if (!uses_memory()) {
    memory_->remove();
    return;
  }
  memory_->remove_stale();
  // The one being written, the one before, and one that is on its way to the disk.
  bool const both = checkpoint().async && checkpoint().memory_every_steps > 0;
  if (!MemoryStore::is_in_memory(checkpoint().memory_directory)) {
    setup_.log.notice(
        fmt::format("note: checkpoint.memory_directory = \"{}\" is not on a tmpfs: it may be as slow as a disk",
                    checkpoint().memory_directory));
  }
  bool const resumes = broadcast_value(setup_.world, setup_.world.rank() == 0 && disk_.newest_step().has_value());
  try {
    memory_->require_room(tensors, origin_bytes, memory_writers(), both ? 3 : 2);
  } catch (Error const& lack) {
    if (!resumes || lack.code() != ExitCode::bad_config) {
      throw;
    }
    setup_.log.notice(fmt::format(
        "note: {}. The run continues: a checkpoint that memory has no room for is on disk only", lack.what()));
  }
}

std::optional<Checkpoint> CheckpointKeeper::newest_on_disk(CheckpointStore::Report const& report) {
  std::optional<Checkpoint> found = [&] {
    try {
      return disk_.newest_verified(report, setup_.world);
    } catch (DataError const& none) {
      throw DataError("{}\n  To start over in a directory beside this one: --fresh", none.what());
    }
  }();
  committed_step_ = found ? found->state().step : -1;
  return found;
}

std::optional<Checkpoint> CheckpointKeeper::newest(CheckpointStore::Report const& report) {
  std::optional<Checkpoint> memory = uses_memory() ? memory_->newest_verified(report) : std::nullopt;
  if (!memory) {
    return newest_on_disk(report);
  }
  bool const is_rank_zero = setup_.world.rank() == 0;
  std::int64_t const step = memory->state().step;
  std::int64_t const on_disk = broadcast_value(setup_.world, is_rank_zero ? disk_.newest_step().value_or(-1) : -1);
  if (on_disk > step) {
    try {
      if (auto disk = newest_on_disk(report); disk && disk->state().step > step) {
        return disk;
      }
    } catch (DataError const& error) {
      if (is_rank_zero) {
        report(error.what());
      }
    }
  }
  // One on disk that is not older was not verified: the next save does that.
  committed_step_ = on_disk < step ? on_disk : -1;
  memory_step_ = step;
  if (is_rank_zero) {
    report(fmt::format("resuming from step {} in memory; the newest on disk is {}", readable_count(step),
                       on_disk < 0 ? "none" : fmt::format("of step {}", readable_count(on_disk))));
  }
  return memory;
}

Checkpoint CheckpointKeeper::go_back(std::int64_t step, CheckpointStore::Report const& report) {
  Checkpoint found = disk_.go_back(step, report, setup_.world);
  memory_->remove();
  memory_step_ = -1;
  committed_step_ = step;
  return found;
}

CheckpointKeeper::Request CheckpointKeeper::remaining(Request const& asked, std::int64_t step) const {
  bool const memory = asked.memory && checkpoint().memory_every_steps > 0;
  return {asked.disk && (asked.again || committed_step_ != step), asked.again, memory, asked.wait};
}

void CheckpointKeeper::log(CommitResult const& result) const {
  std::ranges::for_each(result.notes, [this](std::string const& note) { setup_.log.notice(note); });
  setup_.log.info(result.times);
}

void CheckpointKeeper::insist(std::function<void()> const& save) const {
  using std::chrono_literals::operator""ms;
  for (auto const pause : {500ms, 2000ms}) {
    try {
      save();
      return;
    } catch (Error const& error) {  // the same on all ranks
      if (error.code() != ExitCode::failure) {
        throw;
      }
      setup_.log.warn(fmt::format("{}; it is tried again", error.what()));
      std::this_thread::sleep_for(pause);
    }
  }
  save();
}

void CheckpointKeeper::keep(CheckpointContents const& contents, TensorStream& tensors, Request const& request) {
  if (request.disk) {
    finish();
    keep_on_disk(contents, tensors, request);
  } else if (request.memory) {
    keep_in_memory(contents, tensors);
  }
}

void CheckpointKeeper::keep_on_disk(CheckpointContents const& contents, TensorStream& tensors, Request const& request) {
  bool const background = checkpoint().async && !request.wait;
  auto const snapshot = request.memory || background ? keep_in_memory(contents, tensors) : std::nullopt;
  if (background && snapshot) {
    source_ = snapshot;
    insist([&] { in_flight_ = disk_.begin(setup_.world, *source_); });
    return;
  }
  insist([&] { log(disk_.commit(setup_.world, contents, tensors, checkpoint().writers)); });
  committed_step_ = contents.state.step;
}

void CheckpointKeeper::finish() {
  if (in_flight_) {
    std::int64_t const step = in_flight_->step();
    auto const end = [&] {
      auto begun = in_flight_ ? std::move(in_flight_) : disk_.begin(setup_.world, *source_);
      log(disk_.finish(setup_.world, std::move(begun)));
    };
    if (memory_step_ == step) {
      insist(end);
    } else {
      end();  // a newer checkpoint has replaced the copy in memory that this one was written from
    }
    committed_step_ = step;
  }
}

std::int64_t CheckpointKeeper::linked_best(std::int64_t newest) const {
  return broadcast_value(setup_.world, setup_.world.rank() == 0 ? disk_.linked_best(newest) : 0);
}

void CheckpointKeeper::link_best(std::int64_t step) const {
  if (std::string const problem = setup_.world.rank() == 0 ? disk_.link_best(step) : ""; !problem.empty()) {
    setup_.log.notice("note: " + problem);
  }
}

std::optional<MemoryCheckpoint> CheckpointKeeper::keep_in_memory(CheckpointContents const& contents,
                                                                 TensorStream& tensors) {
  try {
    MemoryCheckpoint made = memory_->commit(contents, tensors, memory_writers());
    memory_failed_ = false;
    memory_step_ = contents.state.step;
    return made;
  } catch (Error const& error) {
    if (error.code() == ExitCode::loss_not_finite) {
      throw;
    }
    if (!memory_failed_) {
      setup_.log.notice(fmt::format("note: {}; further failures of this kind are not printed", error.what()));
    }
    memory_failed_ = true;
    return std::nullopt;
  }
}

void CheckpointKeeper::start_over(RunDirectory const* directory) {
  in_flight_.reset();
  memory_->remove();
  find_memory(directory);
  memory_step_ = -1;
  committed_step_ = -1;
}

void CheckpointKeeper::close() {
  memory_->remove();
}

}  // namespace heddle
