#include <heddle/io/checkpoint/store.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <random>

#include "crashed_disk.hpp"
#include "small_files.hpp"
#include "test.hpp"
#include "torture.hpp"

namespace heddle {
namespace {

constexpr std::int64_t last_step = 5;

/// All numbers of a checkpoint.
std::vector<std::vector<float>> numbers_of(Checkpoint const& checkpoint) {
  std::vector<std::vector<float>> numbers;
  for (TensorInfo const& tensor : checkpoint.tensors()) {
    for (std::string const& key : tensor.keys) {
      numbers.push_back(checkpoint.read(tensor.name, key));
    }
  }
  return numbers;
}

/// Saves of a run that keeps two checkpoints, recorded; every second one by the thread of checkpoint.async.
struct RecordedRun {
  RecordedRun() {
    FileLog log(directory.path());
    CheckpointStore store(directory / "checkpoints", 2);
    for (std::int64_t step = 1; step <= last_step; ++step) {
      small_checkpoint(store.directory(), {.step = step, .keep = 2, .by_thread = step % 2 == 0, .best = step / 2 * 2});
      log.mark(step);
      numbers[step] = numbers_of(*store.newest_verified({}));
    }
    events = log.events();
  }

  TemporaryDirectory directory;
  std::vector<FileEvent> events;
  std::map<std::int64_t, std::vector<std::vector<float>>> numbers;
};

/// A crash of a recorded run.
struct Crash {
  explicit Crash(std::vector<FileEvent> const& events, std::int64_t number, std::mt19937_64& random)
      : first(random() % (events.size() + 1)), loss(static_cast<Loss>(number % losses)) {
    for (std::size_t event = 0; event < first; ++event) {
      if (events[event].kind == FileEvent::Kind::mark) {
        committed = events[event].number;
      }
    }
  }

  std::size_t first;
  Loss loss;
  std::int64_t committed = 0;  ///< the last mark
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
  std::int64_t const cases = torture_count(500, 5'000);
  TemporaryDirectory const disks;
  std::mt19937_64 random(11);
  for (std::int64_t number = 0; number < cases; ++number) {
    Crash const crash(run.events, number, random);
    fs::path const disk = disks / std::to_string(number);
    CrashedDisk(run.events, crash.first, crash.loss, random()).write_to(disk);
    SCOPED_TRACE(testing::Message() << crash.first << " events, loss " << number % losses);
    resume(run, disk, crash.committed, counts);
    fs::remove_all(disk);
  }
  print_figures(fmt::format(
      "{} crash states of {} recorded events of {} saves: lost_committed = {}, accepted_bad = {} (resumed from the "
      "step "
      "being saved {} times, else from the one before)",
      cases, run.events.size(), last_step, counts.lost_committed, counts.accepted_bad, counts.resumed_newer));
  EXPECT_EQ(counts.lost_committed, 0);
  EXPECT_EQ(counts.accepted_bad, 0);
  EXPECT_GT(counts.resumed_newer, 0) << "no crash was late enough";
}

// A file that replaces another one: the old one whole, or the new one whole.
TEST(CrashStates, NoCrashLeavesHalfADataset) {
  TemporaryDirectory const directory;
  std::vector<Samples> written(1);
  std::vector<FileEvent> events;
  {
    FileLog log(directory.path());
    for (int pairs : {40, 25, 60}) {
      written.push_back(read_samples(small_dataset(directory / "train.h5", pairs)));
      log.mark(std::ssize(written) - 1);
    }
    events = log.events();
  }
  std::int64_t const cases = torture_count(200, 2'000);
  std::int64_t bad = 0;
  TemporaryDirectory const disks;
  std::mt19937_64 random(12);
  for (std::int64_t number = 0; number < cases; ++number) {
    Crash const crash(events, number, random);
    fs::path const disk = disks / std::to_string(number);
    CrashedDisk(events, crash.first, crash.loss, random()).write_to(disk);
    auto const left = fs::exists(disk / "train.h5") ? read_samples(disk / "train.h5") : Samples();
    bad += std::find(written.begin() + crash.committed, written.end(), left) == written.end() ? 1 : 0;
    fs::remove_all(disk);
  }
  print_figures(fmt::format("{} crash states of {} recorded events of three datasets of one name: bad = {}", cases,
                            events.size(), bad));
  EXPECT_EQ(bad, 0);
}

}  // namespace
}  // namespace heddle
