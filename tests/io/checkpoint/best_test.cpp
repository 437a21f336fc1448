#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "checkpoint_fixture.hpp"
#include "file_faults.hpp"

namespace heddle {
namespace {

class BestCheckpointTest : public CheckpointTest {};

TEST_F(BestCheckpointTest, TheBestOneIsInTheRecordsAndNotInTheLink) {
  for (auto const& [step, best] : {std::pair(1, 1), {2, 2}, {3, 2}, {4, 2}}) {
    commit_with_best(step, best, 9);
  }
  fs::path const checkpoints = run_ / "checkpoints";
  fs::remove(checkpoints / "best");
  EXPECT_EQ(best(), 2) << "a copy without links";
  EXPECT_EQ(list_checkpoints(checkpoints / "best", CheckpointStore::Check::sizes).at(0).step, 2);
  EXPECT_EQ(store().link_best(4), "");
  EXPECT_EQ(link(), "step-00000002");
  fs::remove(checkpoints / "best");
  fs::copy(checkpoints / "step-00000003", checkpoints / "best");  // as a copy that follows links; an older one
  EXPECT_EQ(best(), 2);
  EXPECT_EQ(list_checkpoints(checkpoints / "best", CheckpointStore::Check::sizes).at(0).step, 3);
  commit_with_best(5, 2, 2);
  EXPECT_THAT(names(), ElementsAre("best", "best-copied-1", "step-00000002", "step-00000004", "step-00000005"));
  EXPECT_EQ(link(), "step-00000002");
}

TEST_F(BestCheckpointTest, WhereTheBestOneIsMissingAnOlderRecordDecides) {
  for (auto const& [step, best] : {std::pair(1, 0), {2, 2}, {3, 2}, {4, 4}, {5, 4}}) {
    commit_with_best(step, best, 9);
  }
  fs::remove_all(run_ / "checkpoints/step-00000004");
  auto const entries = store().list(CheckpointStore::Check::sizes);
  EXPECT_EQ(best_of(entries).step, 2);
  EXPECT_EQ(best_of(entries).missing, 4);
  EXPECT_TRUE(entries.at(1).best);
  EXPECT_EQ(store().link_best(5), "");
  EXPECT_EQ(link(), "step-00000002");
  commit_with_best(6, 4, 2);
  EXPECT_THAT(names(), ElementsAre("best", "step-00000002", "step-00000005", "step-00000006"));
  damage(6);
  EXPECT_EQ(best(), 2) << "a record that does not verify says nothing";
}

TEST_F(BestCheckpointTest, TheBestOneByAnotherMetricStaysUntilThereIsAValue) {
  commit(1, 9);
  for (std::int64_t step = 2; step <= 4; ++step) {
    SampleState sample(step);
    sample.contents().state.best_step = 0;
    sample.contents().state.earlier_best = 1;
    Checkpoint const checkpoint = Checkpoint::open(sample.commit_to(store(2)).directory);
    expect_same_state(checkpoint.state(), sample.contents().state);
  }
  EXPECT_THAT(names(), ElementsAre("best", "step-00000001", "step-00000003", "step-00000004"));
  EXPECT_EQ(best(), 1);
}

TEST_F(BestCheckpointTest, TheLinkOfAnEarlierStepStaysWhereNoRecordNamesABestOne) {
  commit_with_best(1, 0);
  commit_with_best(2, 0);
  fs::create_directory_symlink("step-00000001", run_ / "checkpoints/best");
  EXPECT_EQ(store().link_best(2), "");
  EXPECT_EQ(link(), "step-00000001");
  fs::remove(run_ / "checkpoints/best");
  fs::create_directory_symlink("step-00000002", run_ / "checkpoints/best");
  EXPECT_EQ(store().link_best(1), "");
  EXPECT_EQ(link(), "") << "the run has gone back to before that step";
  EXPECT_EQ(CheckpointStore(run_ / "nothing", 2).link_best(1), "");
  EXPECT_FALSE(fs::exists(run_ / "nothing"));
}

TEST_F(BestCheckpointTest, TheLinkCountsWhereAnEarlierVersionForgotTheBestOne) {
  commit_with_best(1, 1, 2);
  for (std::int64_t step = 2; step <= 5; ++step) {
    commit_with_best(step, 0, 2);
  }
  EXPECT_THAT(names(), ElementsAre("best", "step-00000001", "step-00000004", "step-00000005"));
  EXPECT_EQ(best(), 1);
  EXPECT_EQ(store().linked_best(5), 1);
  EXPECT_EQ(store().linked_best(0), 0) << "a run that went back to before it";
  fs::remove(run_ / "checkpoints/best");
  fs::create_directory_symlink(run_ / "checkpoints/step-00000001", run_ / "checkpoints/best");
  EXPECT_EQ(best(), 0) << "a place, which need not be in this directory";
}

TEST_F(BestCheckpointTest, ACheckpointBeforeTheFirstStepIsNotTheBestOne) {
  for (std::int64_t step = 0; step <= 2; ++step) {
    commit_with_best(step, 0, 2);
  }
  EXPECT_THAT(names(), ElementsAre("step-00000001", "step-00000002"));
}

TEST_F(BestCheckpointTest, IsListedWhileARunLinksAnotherOneAndRemovesIt) {
  commit_with_best(1, 1, 2);
  pid_t const run = ::fork();
  if (run == 0) {
    for (std::int64_t step = 2; step < 500; ++step) {  // until it is killed
      commit_with_best(step, step, 2);
      store().remove(run_ / "checkpoints" / checkpoint_directory_name(step - 1));
    }
    ::_exit(0);
  }
  std::int64_t newest = 0;
  for (int look = 0; look < 60; ++look) {
    auto const entries = list_checkpoints(run_ / "checkpoints/best", CheckpointStore::Check::all_bytes);
    EXPECT_EQ(entries.size(), 1U);
    EXPECT_EQ(entries.empty() ? "" : entries.front().problem, "");
    newest = entries.empty() ? newest : entries.front().step;
  }
  ::kill(run, SIGKILL);
  ASSERT_EQ(::waitpid(run, nullptr, 0), run);
  EXPECT_GT(newest, 1);
}

TEST_F(BestCheckpointTest, WhereNamesCannotBeExchangedNoFailureLosesTheCheckpointThatIsReplaced) {
  bool happened = true;
  for (int number = 0; happened; ++number) {
    SCOPED_TRACE(number);
    fs::remove_all(run_ / "checkpoints");
    commit_with_best(1, 1);
    SampleState waiting(2);
    waiting.contents().state.best_step = 1;
    waiting.contents().state.validation_pending = true;
    waiting.commit_to(store());
    std::string error;
    {
      PlainRenames const plain(number);
      error = message_of<Error>([&] { commit_with_best(2, 2); });
      happened = plain.happened();
    }
    EXPECT_EQ(best(), error.empty() ? 2 : 1);
    EXPECT_EQ(Checkpoint::open(run_ / "checkpoints/step-00000002").state().validation_pending, !error.empty());
    if (!happened) {
      EXPECT_EQ(error, "");
      EXPECT_THAT(names(), ElementsAre("best", "step-00000001", "step-00000002"));
      EXPECT_GT(number, 1);
    }
  }
}

TEST_F(BestCheckpointTest, ADoneValidationReplacesACheckpointThatWaitsForIt) {
  SampleState waiting(2);
  waiting.contents().state.best_step = 1;
  waiting.contents().state.validation_pending = true;
  commit_with_best(1, 1);
  fs::path const place = waiting.commit_to(store()).directory;
  EXPECT_TRUE(Checkpoint::open(place).state().validation_pending);
  EXPECT_TRUE(waiting.commit_to(store()).already_there);
  EXPECT_EQ(link(), "step-00000001");
  EXPECT_FALSE(commit_with_best(2, 2).already_there);
  EXPECT_FALSE(Checkpoint::open(place).state().validation_pending);
  EXPECT_THAT(names(), ElementsAre("best", "step-00000001", "step-00000002"));
  EXPECT_EQ(link(), "step-00000002");
  EXPECT_TRUE(waiting.commit_to(store()).already_there) << "a validation that is done stays done";
}

TEST_F(BestCheckpointTest, AValidationBeforeTheFirstStepMayWait) {
  SampleState start(0);
  start.contents().state.validations_without_improvement = 0;
  start.contents().state.validation_pending = true;
  EXPECT_TRUE(Checkpoint::open(start.commit_to(store()).directory).state().validation_pending);
}

}  // namespace
}  // namespace heddle
