#include <gmock/gmock.h>

#include <filesystem>
#include <heddle/core/base/error.hpp>
#include <heddle/io/checkpoint/store.hpp>
#include <heddle/io/files/replace_file.hpp>
#include <map>

#include "crashed_disk.hpp"
#include "small_files.hpp"
#include "temporary_directory.hpp"
#include "torture.hpp"

namespace heddle {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t last_step = 5;

/// All numbers of a checkpoint.
std::vector<std::vector<float>> numbers_of(Checkpoint const& checkpoint) {
  std::vector<std::vector<float>> numbers;
  for (TensorInfo const& tensor : checkpoint.tensors()) {
    for (TensorPart const part : all_tensor_parts) {
      numbers.push_back(checkpoint.read(tensor.name, part));
    }
  }
  return numbers;
}

/// Saves of a run that keeps two checkpoints, recorded.
struct RecordedRun {
  RecordedRun() {
    test::FileLog log(directory.path());
    CheckpointStore store(directory / "checkpoints", 2);
    for (std::int64_t step = 1; step <= last_step; ++step) {
      test::small_checkpoint(store.directory(), {.step = step, .keep = 2});
      log.mark(step);
      if (step == 2 || step == 4) {
        store.mark_best(step);
      }
      numbers[step] = numbers_of(*store.newest_verified({}));
    }
    events = log.events();
  }

  test::TemporaryDirectory directory;
  std::vector<test::FileEvent> events;
  std::map<std::int64_t, std::vector<std::vector<float>>> numbers;
};

struct Counts {
  std::int64_t lost_committed = 0;
  std::int64_t accepted_bad = 0;
  std::int64_t resumed_earlier = 0;  ///< from the step before the one that was being saved
  std::int64_t resumed_newer = 0;    ///< from the one that was being saved
};

void resume(RecordedRun const& run, fs::path const& disk, std::int64_t committed, Counts& counts) {
  try {
    auto const newest = CheckpointStore(disk / "checkpoints", 2).newest_verified({});
    std::int64_t const step = newest ? newest->state().step : 0;
    counts.lost_committed += step < committed ? 1 : 0;
    counts.accepted_bad += newest && numbers_of(*newest) != run.numbers.at(step) ? 1 : 0;
    (step > committed ? counts.resumed_newer : counts.resumed_earlier) += 1;
  } catch (DataError const& error) {
    ADD_FAILURE() << error.what();
    ++counts.lost_committed;
  }
}

TEST(CrashStates, NoCrashLosesACheckpointOrLeavesABadOne) {
  RecordedRun const run;
  ASSERT_GT(run.events.size(), 60U);
  Counts counts;
  std::int64_t const cases = test::torture_count(500, 5'000);
  test::TemporaryDirectory const disks;
  std::mt19937_64 random(11);
  for (std::int64_t number = 0; number < cases; ++number) {
    std::size_t const first = random() % (run.events.size() + 1);
    std::int64_t committed = 0;
    for (std::size_t event = 0; event < first; ++event) {
      committed = std::max(committed,
                           run.events[event].number * (run.events[event].kind == test::FileEvent::Kind::mark ? 1 : 0));
    }
    auto const loss = static_cast<test::Loss>(number % test::losses);
    fs::path const disk = disks / std::to_string(number);
    test::CrashedDisk(run.events, first, loss, random()).write_to(disk);
    SCOPED_TRACE(testing::Message() << first << " events, loss " << number % test::losses);
    resume(run, disk, committed, counts);
    fs::remove_all(disk);
  }
  test::print_figures(fmt::format(
      "{} crash states of {} recorded events of {} saves: lost_committed = {}, accepted_bad = {} (resumed from the "
      "step "
      "being saved {} times, else from the one before)",
      cases, run.events.size(), last_step, counts.lost_committed, counts.accepted_bad, counts.resumed_newer));
  EXPECT_EQ(counts.lost_committed, 0);
  EXPECT_EQ(counts.accepted_bad, 0);
  EXPECT_GT(counts.resumed_newer, 0) << "no crash was late enough";
}

}  // namespace
}  // namespace heddle
