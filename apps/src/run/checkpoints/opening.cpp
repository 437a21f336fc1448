#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/run.hpp>
#include <iterator>
#include <optional>
#include <utility>

#include "run/checkpoints/base.hpp"
#include "run/checkpoints/best_checkpoints.hpp"

namespace heddle {
namespace {

namespace fs = std::filesystem;

void check_options(CheckpointChoice const& options) {
  if (options.average < 1) {
    throw UsageError("--average is {}; expected at least 1", options.average);
  }
  if ((options.average > 1 && options.which == "best") || (options.average_by != "newest" && options.which != "auto")) {
    throw UsageError("--average and --average-by choose checkpoints of a run, and --which one: give only one of them");
  }
}

/// The checkpoints of a place that are still to be tried.
class Candidates {
 public:
  /// Throws DataError if there are none.
  explicit Candidates(CheckpointChoice const& options) : options_(options) {
    left_ = list_checkpoints(options.checkpoint, CheckpointStore::Check::sizes);
    if (left_.empty()) {
      throw DataError(
          "{}: holds no checkpoints; expected a run's directory, its checkpoints directory or one "
          "of the step-… directories in it",
          options.checkpoint);
    }
    std::error_code ignored;  // of a place that is a missing link
    fs::path const store = left_.back().directory.parent_path();
    bool const store_named = fs::equivalent(store, options.checkpoint, ignored) ||
                             fs::equivalent(store, fs::path(options.checkpoint) / "checkpoints", ignored);
    best_first_ = options.average_by == "newest" && options.which != "last" && options.average == 1 && store_named;
    if (options.average_by != "newest") {
      left_ = ordered(std::move(left_), options.average_by);
      std::ranges::reverse(left_);
    }
  }

  bool one() const { return left_.size() == 1 || (best_first_ && options_.which == "best"); }

  /// Takes the next one; "": there is none. With --which best there is only one.
  std::string next(std::vector<std::string>& notes) {
    if (left_.empty()) {
      return "";
    }
    auto chosen = left_.end() - 1;
    if (best_first_) {
      BestCheckpoint const best = best_of(left_);
      require_best(best);
      chosen = best.step ? std::ranges::find(left_, *best.step, &CheckpointEntry::step) : chosen;
      if (best.missing && !std::exchange(noted_, true)) {
        notes.push_back(
            fmt::format("{}: the best checkpoint, of step {}, is not there or does not verify; {} is taken",
                        options_.checkpoint, *best.missing,
                        best.step ? fmt::format("the best one before it, of step {},", *best.step) : "the newest one"));
      }
    }
    std::string directory = chosen->directory.string();
    left_.erase(chosen);
    if (best_first_ && options_.which == "best") {
      left_.clear();
    }
    return directory;
  }

 private:
  void require_best(BestCheckpoint const& best) const {
    if (options_.which == "best" && !best.step) {
      throw DataError(
          best.missing
              ? fmt::format("{}: the best checkpoint, of step {}, is not there or does not verify; use --which last",
                            options_.checkpoint, *best.missing)
              : fmt::format("{}: the checkpoints name none of them as the best one (a validation "
                            "does that); use --which last",
                            options_.checkpoint));
    }
  }

  CheckpointChoice const& options_;
  std::vector<CheckpointEntry> left_;  ///< the last one is the next, unless the best one comes first
  bool best_first_ = false;
  bool noted_ = false;
};

/// Opens the checkpoints that `options` name. False if one of them was removed after it was listed.
bool open_listed(CheckpointChoice const& options, WantedKeys const& keys, Communicator const& world,
                 Verification verification, OpenedCheckpoints& opened, std::vector<std::string>& notes) {
  std::optional<Candidates> left;
  if (world.rank() == 0) {
    left.emplace(options);
  }
  bool const one = broadcast_value(world, left && left->one());
  while (opened.checkpoints.size() < static_cast<std::size_t>(options.average)) {
    std::string const directory = broadcast_text(world, left ? left->next(notes) : "");
    if (directory.empty()) {
      break;
    }
    try {
      opened.checkpoints.push_back(
          Checkpoint::open(directory, world, keys, one ? verification : Verification::at_opening));
    } catch (DataError const& error) {
      if (!broadcast_value(world, world.rank() != 0 || fs::exists(directory))) {
        return false;
      }
      opened.skipped.emplace_back(error.what());
    }
  }
  return true;
}

/// Throws DataError if fewer checkpoints were opened than are to be averaged.
void require_enough(CheckpointChoice const& options, OpenedCheckpoints const& opened) {
  auto const& [checkpoints, skipped] = opened;
  if (std::ssize(checkpoints) >= options.average) {
    return;
  }
  if (options.average == 1 && skipped.size() == 1) {
    throw DataError(skipped.front());
  }
  throw DataError("{}: {} of the checkpoints there verify{}, {} wanted{}{}", options.checkpoint,
                  checkpoints.empty() ? "none" : std::to_string(checkpoints.size()),
                  options.average_by == "newest" ? "" : " and have a validation", options.average,
                  skipped.empty() ? "" : "\n  ", fmt::join(skipped, "\n  "));
}

}  // namespace

OpenedCheckpoints open_checkpoints(CheckpointChoice const& chosen, WantedKeys const& keys, Communicator const& world,
                                   Verification verification) {
  CheckpointChoice options = chosen;
  std::string const base = options.adapter.empty() ? "" : options.checkpoint;
  if (!options.adapter.empty()) {
    options.checkpoint = options.adapter;
  }
  check_options(options);
  constexpr int max_lists = 100;
  OpenedCheckpoints opened;
  std::vector<std::string> notes;
  for (int list = 1; !open_listed(options, keys, world, verification, opened, notes); ++list) {
    if (list == max_lists) {
      throw DataError("{}: in each of {} attempts to read a checkpoint there, it was removed meanwhile",
                      options.checkpoint, max_lists);
    }
    opened = {};
    notes.clear();
  }
  require_enough(options, opened);
  auto& [checkpoints, skipped] = opened;
  for (Checkpoint& checkpoint : checkpoints) {
    if (!base.empty()) {
      require_base(checkpoint, base);
    }
    if (options.attach_base) {
      attach_base(checkpoint, base, world);
    }
  }
  for (std::string& reason : skipped) {
    reason = "skipped a checkpoint that does not verify: " + reason;
  }
  std::ranges::move(notes, std::back_inserter(skipped));
  return opened;
}

}  // namespace heddle
